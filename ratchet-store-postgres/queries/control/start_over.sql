-- Retried jobs begin anew: due now, with nothing counted against them.
WITH forgotten AS (
    UPDATE ratchet.scheduler_job j
    SET error_fingerprint = NULL, terminal_error = NULL
    WHERE j.job_id = ANY(:job_ids::uuid[])
)
UPDATE ratchet.scheduler_job_queue q
SET attempts = 0, crash_count = 0, last_error = NULL, scheduled_time = :now::timestamptz
WHERE q.job_id = ANY(:job_ids::uuid[])
