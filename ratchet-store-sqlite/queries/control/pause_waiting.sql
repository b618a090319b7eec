UPDATE ratchet.scheduler_job_queue
SET status = 'PAUSED', paused_from_status = 'PENDING', version = version + 1, updated_at = :now
WHERE job_id = :job_id
