UPDATE ratchet.scheduler_job_queue
SET status = 'PAUSED', paused_from_status = 'PENDING', version = min(version, 9223372036854775806) + 1, updated_at = :now
WHERE job_id = :job_id
