UPDATE ratchet.scheduler_job j
SET rec_status = CASE WHEN :paused::boolean THEN 'P' ELSE 'A' END, version = j.version + 1
WHERE j.job_id = :job_id::uuid
