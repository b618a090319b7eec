-- Those of the jobs that have ended.
SELECT j.job_id
FROM ratchet.scheduler_job j
WHERE j.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g) AND j.terminal_status IS NOT NULL
