SELECT q.queue, q.parked_on, count(*) AS jobs, min(q.scheduled_time) AS oldest
FROM ratchet.scheduler_job_queue q
WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
GROUP BY q.queue, q.parked_on
ORDER BY q.queue, q.parked_on
