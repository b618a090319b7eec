SELECT
    c.job_id, c.job_type, c.queue, c.priority, c.max_retries, c.backoff_policy, c.backoff_param_ms, c.payload, c.target,
    c.method, c.created_at
FROM jsonb_each(?1) g CROSS JOIN probe_cold c ON c.job_id = unhex(g.value)
