-- Takes named jobs by the rules of a claim, in the order of the names.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (place, job_id, now)
SELECT min(w.key), q.job_id, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN json_each(:job_ids) w
CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = unhex(w.value)
WHERE EXISTS (
    SELECT 1 FROM ratchet.scheduler_node n WHERE n.node_id = :owner AND NOT n.reaped AND n.lease_until > c.now
)
  AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.scheduled_time <= c.now
GROUP BY q.job_id;

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
