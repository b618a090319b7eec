-- Stores jobs without keys and tags, which are mostly alike: `own_specs` says which of the rows of the other arrays is
-- a job's. An id that is there already is an error, and nothing is stored.
DELETE FROM temp.given_job;

INSERT INTO temp.given_job (
    place, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, target, method, due_at,
    timeout_ms, expires_at, params, on_success_payload, on_success_target, on_success_method, on_failure_payload,
    on_failure_target, on_failure_method, resource_name, caller_principal, trace_context, now
)
SELECT
    s.key + 1, s.value ->> 0, s.value ->> 1, s.value ->> 2, s.value ->> 3, s.value ->> 4, s.value ->> 5, s.value ->> 6,
    s.value ->> 7, coalesce(s.value ->> 9, min(c.now + (s.value ->> 8), 253370764799999)), s.value ->> 10,
    s.value ->> 11, s.value ->> 12, s.value ->> 13, s.value ->> 14, s.value ->> 15, s.value ->> 16, s.value ->> 17,
    s.value ->> 18, s.value ->> 19, s.value ->> 20, s.value ->> 21, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN jsonb_each(:[
    job_types, queues, priorities, max_retries, backoff_policies, backoff_params, targets, methods, delays, instants,
    timeouts, expiries, params, success_payloads, success_targets, success_methods, failure_payloads, failure_targets,
    failure_methods, resources, principals, traces
]) s;

INSERT INTO ratchet.scheduler_job (
    job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, timeout_ms, expires_at,
    payload, target, method, params, on_success_payload, on_success_target, on_success_method,
    on_failure_payload, on_failure_target, on_failure_method, resource_name, caller_principal, trace_context,
    created_at
)
SELECT
    unhex(o.value ->> 0), s.job_type, s.queue, s.priority, s.max_retries, s.backoff_policy, s.backoff_param_ms,
    s.timeout_ms, s.expires_at, o.value ->> 1, s.target, s.method, s.params, s.on_success_payload,
    s.on_success_target, s.on_success_method, s.on_failure_payload, s.on_failure_target, s.on_failure_method,
    s.resource_name, s.caller_principal, s.trace_context, s.now
FROM jsonb_each(:[own_ids, own_payloads, own_specs]) o CROSS JOIN temp.given_job s ON s.place = o.value ->> 2;

INSERT INTO ratchet.scheduler_job_queue (
    job_id, status, job_type, queue, priority, scheduled_time, timeout_ms, max_retries, expires_at, updated_at
)
SELECT
    unhex(o.value ->> 0), 'PENDING', s.job_type, s.queue, s.priority, s.due_at, s.timeout_ms, s.max_retries,
    s.expires_at, s.now
FROM jsonb_each(:[own_ids, own_specs]) o CROSS JOIN temp.given_job s ON s.place = o.value ->> 1
