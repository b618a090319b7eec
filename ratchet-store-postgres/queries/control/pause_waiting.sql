UPDATE ratchet.scheduler_job_queue q
SET status = 'PAUSED', paused_from_status = 'PENDING', version = q.version + 1, updated_at = :now::timestamptz
WHERE q.job_id = :job_id::uuid
