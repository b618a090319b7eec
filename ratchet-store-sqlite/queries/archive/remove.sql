-- Removes jobs with all that hangs on them.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id) SELECT unhex(g.value) FROM json_each(:job_ids) g;

DELETE FROM ratchet.scheduler_job_execution WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_log WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_tag WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE parent_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE child_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_batch WHERE batch_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_dlq_alert WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job WHERE job_id IN (SELECT c.job_id FROM temp.chosen c)
