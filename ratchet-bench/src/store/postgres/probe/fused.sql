WITH gone AS (
    DELETE FROM probe_hot h
    USING unnest($3::uuid[], $4::bigint[]) AS g (job_id, fence)
    WHERE h.job_id = g.job_id AND h.version = g.fence AND h.picked_by = $1
    RETURNING h.job_id, h.version, h.attempts
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
        started_at = now() - $5 * interval '1 millisecond',
        ended_at = now() - ($5 - $6) * interval '1 millisecond'
    FROM gone g
    WHERE c.job_id = g.job_id
)
UPDATE probe_hot
SET status = 'RUNNING', picked_by = $1, picked_at = now(), version = version + 1
WHERE job_id = ANY(ARRAY(
    SELECT h.job_id
    FROM probe_hot h
    WHERE h.queue = 'default' AND h.status = 'PENDING' AND h.scheduled_time <= now()
    ORDER BY h.priority DESC, h.scheduled_time, h.job_id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
RETURNING job_id, version, attempts, priority, scheduled_time
