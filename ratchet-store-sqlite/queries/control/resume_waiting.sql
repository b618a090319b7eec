UPDATE ratchet.scheduler_job_queue
SET status = 'PENDING', picked_by = NULL, paused_from_status = NULL,
    version = min(version, 9223372036854775806) + 1, updated_at = :now
WHERE job_id = :job_id
