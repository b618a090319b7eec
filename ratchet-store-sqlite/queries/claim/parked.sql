-- Takes jobs of one queue that are parked on one thing, whoever has what they lack.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id, now)
SELECT q.job_id, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN ratchet.scheduler_job_queue q
WHERE EXISTS (
    SELECT 1 FROM ratchet.scheduler_node n WHERE n.node_id = :owner AND NOT n.reaped AND n.lease_until > c.now
)
  AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_queue_pause p WHERE p.queue = :queue)
  AND q.queue = :queue AND q.parked_on = :parked_on AND q.status = 'PENDING' AND q.blocked_by = 0
  AND q.scheduled_time <= c.now AND length(q.job_id) = 16
ORDER BY q.job_id
LIMIT :lim;

UPDATE ratchet.scheduler_job_queue AS q
SET status = 'RUNNING', picked_by = :owner, picked_at = c.now, version = min(q.version, 9223372036854775806) + 1,
    parked_on = NULL, updated_at = c.now
FROM temp.chosen c
WHERE q.job_id = c.job_id;

SELECT
    q.job_id, q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at, q.attempts, q.crash_count,
    q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
    coalesce(q.expires_at <= c.now, 0) AS expired
FROM temp.chosen c CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = c.job_id
ORDER BY c.place
