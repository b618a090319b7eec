-- The rows of jobs that have no queue row: ended ones and schedules.
SELECT
    j.job_id, j.version, j.terminal_status, j.rec_status, j.batch_id, j.cancel_cascaded, j.blocked_by,
    j.open_parents, j.execution_end_time - j.execution_start_time AS ran_ms
FROM ratchet.scheduler_job j
WHERE j.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g)
ORDER BY j.job_id
