-- Moves jobs of dead owners to a live one.
DELETE FROM temp.chosen;

-- An owner without a row in the list of nodes is as dead as one whose lease has run out.
INSERT INTO temp.chosen (job_id, now, owner)
SELECT q.job_id, c.now, q.picked_by
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN ratchet.scheduler_job_queue q
WHERE q.status = 'RUNNING' AND q.picked_by IN (SELECT d.value FROM json_each(:dead) d) AND q.picked_by <> :owner
  AND EXISTS (
      SELECT 1 FROM ratchet.scheduler_node n WHERE n.node_id = :owner AND NOT n.reaped AND n.lease_until > c.now
  )
  AND NOT EXISTS (
      SELECT 1 FROM ratchet.scheduler_node n
      WHERE n.node_id = q.picked_by AND NOT n.reaped AND n.lease_until > c.now
  )
ORDER BY q.job_id
LIMIT :lim;

UPDATE ratchet.scheduler_job_queue AS q
SET picked_by = :owner, version = min(q.version, 9223372036854775806) + 1, updated_at = c.now
FROM temp.chosen c
WHERE q.job_id = c.job_id;

-- Only those of whom something was taken are fenced.
UPDATE ratchet.scheduler_node
SET reaped = 1
WHERE node_id IN (SELECT c.owner FROM temp.chosen c) AND NOT reaped;

SELECT
    q.job_id, q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at, q.attempts,
    q.crash_count, q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
    coalesce(q.expires_at <= c.now, 0) AS expired
FROM temp.chosen c CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = c.job_id
ORDER BY c.place
