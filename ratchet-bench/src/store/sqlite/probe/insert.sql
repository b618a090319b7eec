BEGIN IMMEDIATE;
INSERT INTO probe_cold (
    job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, payload, target, method,
    created_at, version, total_attempts, crash_count
)
SELECT unhex(g.value ->> 0), 'SINGLE', 'default', 2, 0, 'NONE', 0, g.value ->> 1, ?2, ?3, ?4, 1, 0, 0
FROM jsonb_each(?1) g;
INSERT INTO probe_hot (
    job_id, status, job_type, queue, priority, scheduled_time, max_retries, attempts, crash_count, blocked_by,
    edge_count, cancel_requested, version, updated_at
)
SELECT unhex(g.value ->> 0), 'PENDING', 'SINGLE', 'default', 2, ?4, 0, 0, 0, 0, 0, 0, 1, ?4 FROM jsonb_each(?1) g;
COMMIT
