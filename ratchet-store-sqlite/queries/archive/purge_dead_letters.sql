-- Removes the oldest dead letters with what hangs on them.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id)
SELECT j.job_id
FROM ratchet.scheduler_job j
WHERE j.terminal_status = 'FAILED'
  AND j.terminated_at < coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) - :retention_ms
ORDER BY j.terminated_at, j.job_id
LIMIT :lim;

DELETE FROM ratchet.scheduler_job_execution WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_log WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE parent_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE child_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_dlq_alert WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job WHERE job_id IN (SELECT c.job_id FROM temp.chosen c)
