-- Takes jobs that no claim will ever find: nobody can ask for their queue or priority, or they are never due; and those
-- that nobody could recover, because their owner's name cannot be read. Reads every queue row.
DELETE FROM temp.chosen;

-- Bytes that are no UTF-8 are read as U+FFFD, which a name may also hold.
INSERT INTO temp.chosen (job_id, now)
SELECT q.job_id, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN ratchet.scheduler_job_queue q
WHERE EXISTS (
    SELECT 1 FROM ratchet.scheduler_node n WHERE n.node_id = :owner AND NOT n.reaped AND n.lease_until > c.now
)
  AND (
      q.status NOT IN ('PENDING', 'RUNNING', 'PAUSED')
      OR q.status = 'RUNNING' AND (
          q.picked_by IS NULL OR instr(CAST(q.picked_by AS BLOB), x'00') > 0
          OR (q.picked_by GLOB '*' || char(65533) || '*' AND instr(CAST(q.picked_by AS BLOB), x'efbfbd') = 0)
      )
      OR q.status = 'PENDING' AND (
      q.priority NOT BETWEEN 0 AND 4 OR q.blocked_by < 0 OR q.scheduled_time > 253370764799999
      OR q.queue = '' OR length(CAST(q.queue AS BLOB)) > 64
      OR q.queue GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
      OR instr(CAST(q.queue AS BLOB), x'00') > 0
      OR (q.queue GLOB '*' || char(65533) || '*' AND instr(CAST(q.queue AS BLOB), x'efbfbd') = 0)
      )
  )
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
