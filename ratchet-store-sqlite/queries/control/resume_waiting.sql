UPDATE ratchet.scheduler_job_queue
SET status = 'PENDING', paused_from_status = NULL, version = version + 1, updated_at = :now
WHERE job_id = :job_id
