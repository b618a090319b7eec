BEGIN IMMEDIATE;
INSERT INTO orders (id, placed_at) VALUES (?1, ?3);
INSERT INTO probe_cold (
    job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, payload, target, method,
    created_at, version, total_attempts, crash_count
)
VALUES (?2, 'SINGLE', 'default', 2, 0, 'NONE', 0, ?4, ?5, ?6, ?3, 1, 0, 0);
INSERT INTO probe_hot (
    job_id, status, job_type, queue, priority, scheduled_time, max_retries, attempts, crash_count, blocked_by,
    edge_count, cancel_requested, version, updated_at
)
VALUES (?2, 'PENDING', 'SINGLE', 'default', 2, ?3, 0, 0, 0, 0, 0, 0, 1, ?3);
COMMIT
