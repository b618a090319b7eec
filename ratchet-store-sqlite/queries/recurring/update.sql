-- Changes a schedule in place; takes the arrays of insert/jobs.sql with one element each.
DELETE FROM ratchet.scheduler_job_tag
WHERE job_id = :holder AND tag NOT IN (SELECT t.value FROM json_each(:tags) t);

-- Tags that stay keep their place.
INSERT INTO ratchet.scheduler_job_tag (job_id, tag, place)
SELECT
    :holder, t.value,
    t.key + coalesce((SELECT 1 + max(o.place) FROM ratchet.scheduler_job_tag o WHERE o.job_id = :holder), 0)
FROM json_each(:tags) t
WHERE true
ON CONFLICT DO NOTHING;

UPDATE ratchet.scheduler_job AS j
SET queue = g.value ->> 0, priority = g.value ->> 1, max_retries = g.value ->> 2, backoff_policy = g.value ->> 3,
    backoff_param_ms = g.value ->> 4, timeout_ms = g.value ->> 5, expires_at = g.value ->> 6, payload = g.value ->> 7,
    target = g.value ->> 8, method = g.value ->> 9, params = g.value ->> 10, on_success_payload = g.value ->> 11,
    on_success_target = g.value ->> 12, on_success_method = g.value ->> 13, on_failure_payload = g.value ->> 14,
    on_failure_target = g.value ->> 15, on_failure_method = g.value ->> 16, resource_name = g.value ->> 17,
    trace_context = g.value ->> 18,
    next_fire = CASE WHEN j.cron_expr = :cron AND j.zone_id = :zone THEN j.next_fire ELSE :next_fire END,
    cron_expr = :cron,
    zone_id = :zone
FROM jsonb_each(:[
    queues, priorities, max_retries, backoff_policies, backoff_params, timeouts, expiries, payloads, targets, methods,
    params, success_payloads, success_targets, success_methods, failure_payloads, failure_targets, failure_methods,
    resources, traces
]) g
WHERE j.job_id = :holder
