-- Stores jobs that are checked as far as they can be: both rows, keys and tags. Keys that are taken provoke no error;
-- whoever does not get them all is not stored. The answer tells for each job how far it came.
--
-- A job that got its idempotency key but not its business key leaves a ledger row behind, because a statement cannot
-- undo what it did: insert/undo_keys.sql removes it in the same transaction.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
given AS MATERIALIZED (
    SELECT g.*
    FROM unnest(
        :job_ids::uuid[], :job_types::text[], :queues::text[], :priorities::smallint[], :max_retries::bigint[],
        :backoff_policies::text[], :backoff_params::bigint[], :timeouts::bigint[], :expiries::timestamptz[],
        :payloads::text[], :targets::text[], :methods::text[], :params::text[],
        :success_payloads::text[], :success_targets::text[], :success_methods::text[],
        :failure_payloads::text[], :failure_targets::text[], :failure_methods::text[],
        :idempotency_keys::text[], :key_hashes::bytea[], :business_keys::text[], :resources::text[],
        :principals::text[], :traces::text[], :batches::uuid[], :depends_on::uuid[],
        :delays::bigint[], :instants::timestamptz[], :blocked_by::bigint[], :open_parents::bigint[]
    ) WITH ORDINALITY AS g (
        job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, timeout_ms, expires_at,
        payload, target, method, params, on_success_payload, on_success_target, on_success_method,
        on_failure_payload, on_failure_target, on_failure_method, idempotency_key, key_hash, business_key,
        resource_name, caller_principal, trace_context, batch_id, depends_on, delay_ms, due_at, blocked_by,
        open_parents, place
    )
),
-- A job that is there already takes no keys. Whether one without keys is there, its own insert finds out.
-- In the order of the keys, so that two calls wait for each other in one direction only.
ledger AS (
    INSERT INTO ratchet.scheduler_idempotency_key (key_hash, job_id, created_at)
    SELECT g.key_hash, g.job_id, (SELECT c.now FROM clock c)
    FROM given g
    WHERE g.key_hash IS NOT NULL
      AND NOT EXISTS (SELECT FROM ratchet.scheduler_job j WHERE j.job_id = g.job_id)
    ORDER BY g.key_hash
    ON CONFLICT DO NOTHING
    RETURNING job_id
),
reserved AS (
    INSERT INTO ratchet.scheduler_business_key_reservation (business_key, owner_job_id, owner_table, reserved_at)
    SELECT g.business_key, g.job_id, 'QUEUE', (SELECT c.now FROM clock c)
    FROM given g
    WHERE g.business_key IS NOT NULL
      AND (g.key_hash IS NULL OR g.job_id IN (SELECT l.job_id FROM ledger l))
      AND NOT EXISTS (SELECT FROM ratchet.scheduler_job j WHERE j.job_id = g.job_id)
    ORDER BY g.business_key
    ON CONFLICT DO NOTHING
    RETURNING owner_job_id
),
cold AS (
    INSERT INTO ratchet.scheduler_job (
        job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, timeout_ms, expires_at,
        payload, target, method, params, on_success_payload, on_success_target, on_success_method,
        on_failure_payload, on_failure_target, on_failure_method, idempotency_key, business_key, resource_name,
        caller_principal, trace_context, batch_id, depends_on, created_at
    )
    SELECT
        g.job_id, g.job_type, g.queue, g.priority, g.max_retries, g.backoff_policy, g.backoff_param_ms, g.timeout_ms,
        g.expires_at, g.payload::json, g.target, g.method, g.params::json, g.on_success_payload::json,
        g.on_success_target, g.on_success_method, g.on_failure_payload::json, g.on_failure_target,
        g.on_failure_method, g.idempotency_key, g.business_key, g.resource_name, g.caller_principal, g.trace_context,
        g.batch_id, g.depends_on, (SELECT c.now FROM clock c)
    FROM given g
    WHERE (g.key_hash IS NULL OR g.job_id IN (SELECT l.job_id FROM ledger l))
      AND (g.business_key IS NULL OR g.job_id IN (SELECT r.owner_job_id FROM reserved r))
    ON CONFLICT DO NOTHING
    RETURNING job_id
),
hot AS (
    INSERT INTO ratchet.scheduler_job_queue (
        job_id, status, job_type, queue, priority, scheduled_time, business_key, timeout_ms, max_retries, expires_at,
        batch_id, blocked_by, open_parents, updated_at
    )
    SELECT
        g.job_id, 'PENDING', g.job_type, g.queue, g.priority,
        coalesce(g.due_at, least(k.now + g.delay_ms * interval '1 millisecond', '9998-12-31 23:59:59.999+00')),
        g.business_key, g.timeout_ms, g.max_retries, g.expires_at, g.batch_id, g.blocked_by, g.open_parents, k.now
    FROM given g JOIN cold USING (job_id) CROSS JOIN clock k
),
tagged AS (
    INSERT INTO ratchet.scheduler_job_tag (job_id, tag)
    SELECT t.job_id, t.tag
    FROM unnest(:tag_jobs::uuid[], :tags::text[]) WITH ORDINALITY AS t (job_id, tag, place) JOIN cold USING (job_id)
    ORDER BY t.place
    ON CONFLICT DO NOTHING
)
SELECT
    g.job_id,
    g.job_id IN (SELECT job_id FROM cold) AS stored,
    g.job_id IN (SELECT job_id FROM ledger) AS in_ledger,
    g.job_id IN (SELECT owner_job_id FROM reserved) AS has_key
FROM given g
ORDER BY g.place
