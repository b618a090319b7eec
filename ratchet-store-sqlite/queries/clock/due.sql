-- After the clock went back: jobs that would be due by now are due now, and delays from before stay as long as they
-- were; unless a job got its due time since then.
UPDATE ratchet.scheduler_job_queue
SET scheduled_time = max(c.now, scheduled_time - :by_ms), updated_at = c.now
FROM (
    SELECT q.job_id, k.now
    FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) k
    CROSS JOIN ratchet.scheduler_job_queue q
    WHERE q.status <> 'RUNNING' AND q.scheduled_time > k.now
      AND q.scheduled_time <= k.now + CASE WHEN q.updated_at > k.now THEN 2 * :by_ms ELSE :by_ms END
      AND NOT (q.updated_at BETWEEN k.now - :within_ms AND k.now)
    LIMIT :lim
) c
WHERE ratchet.scheduler_job_queue.job_id = c.job_id
