-- Locks the rows of jobs that have no queue row: ended ones and schedules.
SELECT
    j.job_id, j.version, j.terminal_status, j.rec_status, j.batch_id, j.cancel_cascaded, j.blocked_by,
    j.open_parents, (extract(epoch FROM j.execution_end_time - j.execution_start_time) * 1000)::bigint AS ran_ms
FROM ratchet.scheduler_job j
WHERE j.job_id = ANY(:job_ids::uuid[])
ORDER BY j.job_id
FOR UPDATE
