UPDATE ratchet.scheduler_job j
SET rec_status = CASE WHEN :paused::boolean THEN 'P' ELSE 'A' END, version = least(j.version, 9223372036854775806) + 1
WHERE j.job_id = :job_id::uuid
