WITH gone AS (
    DELETE FROM probe_hot h
    USING unnest($2::uuid[], $3::bigint[]) AS g (job_id, fence)
    WHERE h.job_id = g.job_id AND h.version = g.fence AND h.picked_by = $1
    RETURNING h.job_id, h.version, h.attempts
),
history AS (
    INSERT INTO probe_history (job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms)
    SELECT g.job_id, g.version, $1, 'SUCCEEDED', g.attempts, now() - $4 * interval '1 millisecond', now(), $5
    FROM gone g
)
UPDATE probe_cold c
SET terminal_status = 'SUCCEEDED',
    terminated_at = now(),
    started_at = now() - $4 * interval '1 millisecond',
    ended_at = now() - ($4 - $5) * interval '1 millisecond'
FROM gone g
WHERE c.job_id = g.job_id
