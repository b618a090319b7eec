UPDATE ratchet.scheduler_job_queue q
SET status = 'PENDING', paused_from_status = NULL, version = least(q.version, 9223372036854775806) + 1, updated_at = :now::timestamptz
WHERE q.job_id = :job_id::uuid
