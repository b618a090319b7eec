WITH given AS MATERIALIZED (
    SELECT g.job_id, g.payload FROM unnest($1::uuid[], $2::text[]) AS g (job_id, payload)
),
cold AS (
    INSERT INTO probe_cold (
        job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, payload, target, method,
        created_at, version, total_attempts, crash_count
    )
    SELECT g.job_id, 'SINGLE', 'default', 2, 0, 'NONE', 0, g.payload::json, $3, $4, now(), 1, 0, 0 FROM given g
)
INSERT INTO probe_hot (
    job_id, status, job_type, queue, priority, scheduled_time, max_retries, attempts, crash_count, blocked_by,
    edge_count, cancel_requested, version, updated_at
)
SELECT g.job_id, 'PENDING', 'SINGLE', 'default', 2, now(), 0, 0, 0, 0, 0, false, 1, now() FROM given g
