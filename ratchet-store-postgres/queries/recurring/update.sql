-- Changes a schedule in place; takes the arrays of insert/jobs.sql with one element each. The row is held.
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
    ) AS g (
        job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, timeout_ms, expires_at,
        payload, target, method, params, on_success_payload, on_success_target, on_success_method,
        on_failure_payload, on_failure_target, on_failure_method, idempotency_key, key_hash, business_key,
        resource_name, caller_principal, trace_context, batch_id, depends_on, delay_ms, due_at, blocked_by,
        open_parents
    )
),
-- Tags that stay keep their row: a statement cannot delete and insert one key.
tagged AS (
    INSERT INTO ratchet.scheduler_job_tag (job_id, tag)
    SELECT h.job_id, t.tag
    FROM unnest(:tag_jobs::uuid[], :tags::text[]) WITH ORDINALITY AS t (job_id, tag, place)
    CROSS JOIN (SELECT :holder::uuid AS job_id) h
    ORDER BY t.place
    ON CONFLICT DO NOTHING
),
untagged AS (
    DELETE FROM ratchet.scheduler_job_tag t WHERE t.job_id = :holder::uuid AND t.tag <> ALL(:tags::text[])
)
UPDATE ratchet.scheduler_job j
SET queue = g.queue, priority = g.priority, max_retries = g.max_retries, backoff_policy = g.backoff_policy,
    backoff_param_ms = g.backoff_param_ms, timeout_ms = g.timeout_ms, expires_at = g.expires_at,
    payload = g.payload::json, target = g.target, method = g.method, params = g.params::json,
    on_success_payload = g.on_success_payload::json, on_success_target = g.on_success_target,
    on_success_method = g.on_success_method, on_failure_payload = g.on_failure_payload::json,
    on_failure_target = g.on_failure_target, on_failure_method = g.on_failure_method,
    resource_name = g.resource_name, trace_context = g.trace_context,
    next_fire = CASE
        WHEN j.cron_expr = :cron::text AND j.zone_id = :zone::text THEN j.next_fire
        ELSE :next_fire::timestamptz
    END,
    cron_expr = :cron::text, zone_id = :zone::text
FROM given g CROSS JOIN clock c
WHERE j.job_id = :holder::uuid
