-- The order of the seeds, as it is written there: every due row sorted by what it is worth now.
SELECT job_id
FROM scheduler_job_queue
WHERE queue = ?1 AND status = 'PENDING' AND blocked_by = 0 AND scheduled_time <= ?2
ORDER BY priority + (?2 - scheduled_time) / ?3 DESC, scheduled_time, job_id
LIMIT ?4
