BEGIN IMMEDIATE;
INSERT INTO probe_history (job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms)
SELECT h.job_id, h.version, ?1, 'SUCCEEDED', h.attempts, ?3 - ?5, ?3, ?6
FROM jsonb_each(?4) g CROSS JOIN probe_hot h ON h.job_id = unhex(g.value ->> 0)
WHERE h.version = g.value ->> 1 AND h.picked_by = ?1;
UPDATE probe_cold AS c
SET terminal_status = 'SUCCEEDED',
    terminated_at = ?3,
    version = h.version + 1,
    total_attempts = h.attempts,
    crash_count = h.crash_count,
    scheduled_time = h.scheduled_time,
    execution_start_time = ?3 - ?5,
    execution_end_time = ?3 - ?5 + ?6,
    queue_wait_ms = h.picked_at - h.scheduled_time
FROM jsonb_each(?4) g CROSS JOIN probe_hot h ON h.job_id = unhex(g.value ->> 0)
WHERE c.job_id = h.job_id AND h.version = g.value ->> 1 AND h.picked_by = ?1;
DELETE FROM probe_hot
WHERE picked_by = ?1 AND (job_id, version) IN (SELECT unhex(g.value ->> 0), g.value ->> 1 FROM jsonb_each(?4) g);
COMMIT
