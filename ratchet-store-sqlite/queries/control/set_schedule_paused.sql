UPDATE ratchet.scheduler_job
SET rec_status = CASE WHEN :paused THEN 'P' ELSE 'A' END, version = min(version, 9223372036854775806) + 1
WHERE job_id = :job_id
