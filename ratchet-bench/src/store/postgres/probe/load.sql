SELECT
    job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, payload::text AS payload, target,
    method, created_at
FROM probe_cold
WHERE job_id = ANY($1)
