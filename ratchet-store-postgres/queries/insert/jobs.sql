-- Stores jobs that are checked as far as they can be: both rows, keys and tags. Keys that are taken provoke no error;
-- whoever does not get them all is not stored. The answer tells for each job how far it came.
--
-- A job that got its idempotency key but not its business key leaves a ledger row behind, because a statement cannot
-- undo what it did: insert/undo_keys.sql removes it in the same transaction.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
given AS MATERIALIZED (
    SELECT g.*, EXISTS (SELECT FROM ratchet.scheduler_job j WHERE j.job_id = g.job_id) AS known
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
-- In the order of the keys, so that two calls wait for each other in one direction only.
ledger AS (
    INSERT INTO ratchet.scheduler_idempotency_key (key_hash, job_id, created_at)
    SELECT g.key_hash, g.job_id, c.now
    FROM given g CROSS JOIN clock c
    WHERE g.key_hash IS NOT NULL AND NOT g.known
    ORDER BY g.key_hash
    ON CONFLICT DO NOTHING
    RETURNING job_id
),
fresh AS MATERIALIZED (
    SELECT g.*
    FROM given g
    WHERE NOT g.known AND (g.key_hash IS NULL OR g.job_id IN (SELECT l.job_id FROM ledger l))
),
reserved AS (
    INSERT INTO ratchet.scheduler_business_key_reservation (business_key, owner_job_id, owner_table, reserved_at)
    SELECT f.business_key, f.job_id, 'QUEUE', c.now
    FROM fresh f CROSS JOIN clock c
    WHERE f.business_key IS NOT NULL
    ORDER BY f.business_key
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
        f.job_id, f.job_type, f.queue, f.priority, f.max_retries, f.backoff_policy, f.backoff_param_ms, f.timeout_ms,
        f.expires_at, f.payload::json, f.target, f.method, f.params::json, f.on_success_payload::json,
        f.on_success_target, f.on_success_method, f.on_failure_payload::json, f.on_failure_target,
        f.on_failure_method, f.idempotency_key, f.business_key, f.resource_name, f.caller_principal, f.trace_context,
        f.batch_id, f.depends_on, c.now
    FROM fresh f CROSS JOIN clock c
    WHERE f.business_key IS NULL OR f.job_id IN (SELECT r.owner_job_id FROM reserved r)
    ORDER BY f.place
    ON CONFLICT DO NOTHING
    RETURNING job_id
),
hot AS (
    INSERT INTO ratchet.scheduler_job_queue (
        job_id, status, job_type, queue, priority, scheduled_time, business_key, timeout_ms, max_retries, expires_at,
        batch_id, blocked_by, open_parents, updated_at
    )
    SELECT
        f.job_id, 'PENDING', f.job_type, f.queue, f.priority,
        coalesce(f.due_at, least(c.now + f.delay_ms * interval '1 millisecond', '9998-12-31 23:59:59.999+00')),
        f.business_key, f.timeout_ms, f.max_retries, f.expires_at, f.batch_id, f.blocked_by, f.open_parents, c.now
    FROM fresh f JOIN cold USING (job_id) CROSS JOIN clock c
    ORDER BY f.place
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
