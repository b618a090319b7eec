WITH gone AS (
    DELETE FROM probe_hot h
    USING unnest($3::uuid[], $4::bigint[]) AS g (job_id, fence)
    WHERE h.job_id = g.job_id AND h.version = g.fence AND h.picked_by = $1
    RETURNING h.job_id, h.version, h.attempts, h.crash_count, h.scheduled_time, h.picked_at
),
history AS (
    INSERT INTO probe_history (job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms)
    SELECT g.job_id, g.version, $1, 'SUCCEEDED', g.attempts, now() - $5 * interval '1 millisecond', now(), $6
    FROM gone g
),
ended AS (
    UPDATE probe_cold c
    SET terminal_status = 'SUCCEEDED',
        terminated_at = now(),
        version = g.version + 1,
        total_attempts = g.attempts,
        crash_count = g.crash_count,
        scheduled_time = g.scheduled_time,
        execution_start_time = now() - $5 * interval '1 millisecond',
        execution_end_time = now() - ($5 - $6) * interval '1 millisecond',
        queue_wait_ms = (date_part('epoch', g.picked_at - g.scheduled_time) * 1000)::bigint
    FROM gone g
    WHERE c.job_id = g.job_id
)
UPDATE probe_hot
SET status = 'RUNNING', picked_by = $1, picked_at = now(), version = version + 1, updated_at = now()
WHERE job_id = ANY(ARRAY(
    SELECT h.job_id
    FROM probe_hot h
    WHERE h.queue = 'default' AND h.status = 'PENDING' AND h.blocked_by = 0 AND h.scheduled_time <= now()
    ORDER BY h.priority DESC, h.scheduled_time, h.job_id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
RETURNING
    job_id, version, queue, job_type, priority, scheduled_time, picked_at, attempts, crash_count, max_retries, edge_count,
    cancel_requested
