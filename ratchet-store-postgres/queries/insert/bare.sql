-- Stores jobs without keys and tags, which are mostly alike: `own_specs` says which of the rows of the other arrays is
-- a job's. An id that is there already is an error, and nothing is stored. (Arrays side by side in a SELECT are read in
-- step; in FROM each would be written down first.)
WITH own AS MATERIALIZED (
    SELECT
        unnest(:own_ids::uuid[]) AS job_id, unnest(:own_payloads::text[]) AS payload, unnest(:own_specs::bigint[]) AS spec
),
-- What is the same for many jobs is computed here. (Not the lengths of texts: a cast would cut what the column refuses.)
specs AS MATERIALIZED (
    SELECT
        s.spec, s.job_type, s.queue, s.priority, s.max_retries, s.backoff_policy, s.backoff_param_ms, s.timeout_ms,
        s.expires_at::timestamptz(3), s.target, s.method, s.params::json, s.on_success_payload::json,
        s.on_success_target, s.on_success_method, s.on_failure_payload::json, s.on_failure_target,
        s.on_failure_method, s.resource_name, s.caller_principal, s.trace_context, c.now::timestamptz(3) AS now,
        coalesce(
            s.due_at, least(c.now + s.delay_ms * interval '1 millisecond', '9998-12-31 23:59:59.999+00')
        )::timestamptz(3) AS scheduled_time
    FROM unnest(
        :job_types::text[], :queues::text[], :priorities::smallint[], :max_retries::bigint[],
        :backoff_policies::text[], :backoff_params::bigint[], :timeouts::bigint[], :expiries::timestamptz[],
        :targets::text[], :methods::text[], :params::text[],
        :success_payloads::text[], :success_targets::text[], :success_methods::text[],
        :failure_payloads::text[], :failure_targets::text[], :failure_methods::text[],
        :resources::text[], :principals::text[], :traces::text[], :delays::bigint[], :instants::timestamptz[]
    ) WITH ORDINALITY AS s (
        job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, timeout_ms, expires_at, target,
        method, params, on_success_payload, on_success_target, on_success_method, on_failure_payload,
        on_failure_target, on_failure_method, resource_name, caller_principal, trace_context, delay_ms, due_at, spec
    )
    CROSS JOIN (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
),
cold AS (
    INSERT INTO ratchet.scheduler_job (
        job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, timeout_ms, expires_at,
        payload, target, method, params, on_success_payload, on_success_target, on_success_method,
        on_failure_payload, on_failure_target, on_failure_method, resource_name, caller_principal, trace_context,
        created_at
    )
    SELECT
        o.job_id, s.job_type, s.queue, s.priority, s.max_retries, s.backoff_policy, s.backoff_param_ms, s.timeout_ms,
        s.expires_at, o.payload::json, s.target, s.method, s.params, s.on_success_payload,
        s.on_success_target, s.on_success_method, s.on_failure_payload, s.on_failure_target,
        s.on_failure_method, s.resource_name, s.caller_principal, s.trace_context, s.now
    FROM own o JOIN specs s USING (spec)
)
INSERT INTO ratchet.scheduler_job_queue (
    job_id, status, job_type, queue, priority, scheduled_time, timeout_ms, max_retries, expires_at, updated_at
)
SELECT
    o.job_id, 'PENDING', s.job_type, s.queue, s.priority, s.scheduled_time, s.timeout_ms, s.max_retries, s.expires_at, s.now
FROM own o JOIN specs s USING (spec)
