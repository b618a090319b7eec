-- A retried job begins anew: due now, with nothing counted against it.
UPDATE ratchet.scheduler_job SET error_fingerprint = NULL, terminal_error = NULL WHERE job_id = :job_id;

UPDATE ratchet.scheduler_job_queue
SET attempts = 0, crash_count = 0, last_error = NULL, scheduled_time = :now
WHERE job_id = :job_id
