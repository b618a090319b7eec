WITH gone AS (
    DELETE FROM probe_hot h
    USING unnest($2::uuid[], $3::bigint[]) AS g (job_id, fence)
    WHERE h.job_id = g.job_id AND h.version = g.fence AND h.picked_by = $1
    RETURNING h.job_id, h.version, h.attempts, h.crash_count, h.scheduled_time, h.picked_at
),
history AS (
    INSERT INTO probe_history (job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms)
    SELECT g.job_id, g.version, $1, 'SUCCEEDED', g.attempts, now() - $4 * interval '1 millisecond', now(), $5
    FROM gone g
)
UPDATE probe_cold c
SET terminal_status = 'SUCCEEDED',
    terminated_at = now(),
    version = g.version + 1,
    total_attempts = g.attempts,
    crash_count = g.crash_count,
    scheduled_time = g.scheduled_time,
    execution_start_time = now() - $4 * interval '1 millisecond',
    execution_end_time = now() - ($4 - $5) * interval '1 millisecond',
    queue_wait_ms = (date_part('epoch', g.picked_at - g.scheduled_time) * 1000)::bigint
FROM gone g
WHERE c.job_id = g.job_id
