-- Retried jobs begin anew: due now, with nothing counted against them.
UPDATE ratchet.scheduler_job
SET error_fingerprint = NULL, terminal_error = NULL
WHERE job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g);

UPDATE ratchet.scheduler_job_queue
SET attempts = 0, crash_count = 0, last_error = NULL, scheduled_time = :now
WHERE job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g)
