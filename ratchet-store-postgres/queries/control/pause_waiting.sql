UPDATE ratchet.scheduler_job_queue q
SET status = 'PAUSED', paused_from_status = 'PENDING', version = least(q.version, 9223372036854775806) + 1, updated_at = :now::timestamptz
WHERE q.job_id = :job_id::uuid
