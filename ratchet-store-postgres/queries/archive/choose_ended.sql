-- Locks those of the jobs that have ended.
SELECT j.job_id
FROM ratchet.scheduler_job j
WHERE j.job_id = ANY(:job_ids::uuid[]) AND j.terminal_status IS NOT NULL
ORDER BY j.job_id
FOR UPDATE
