-- Removes ended jobs with what hangs on them; tags and batches go with the row.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id)
SELECT j.job_id
FROM ratchet.scheduler_job j
WHERE j.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g) AND j.terminal_status IS NOT NULL;

DELETE FROM ratchet.scheduler_job_execution WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_log WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE parent_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE child_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_dlq_alert WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job WHERE job_id IN (SELECT c.job_id FROM temp.chosen c)
