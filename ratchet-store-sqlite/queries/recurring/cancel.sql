-- Ends schedules, paused or not.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id)
SELECT j.job_id
FROM ratchet.scheduler_job j
WHERE j.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g) AND j.rec_status IS NOT NULL;

UPDATE ratchet.scheduler_job
SET terminal_status = 'CANCELED', rec_status = NULL, cancel_reason = :reason, version = min(version, 9223372036854775806) + 1,
    scheduled_time = created_at, terminated_at = :now
WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE (business_key, owner_job_id) IN (
    SELECT j.business_key, j.job_id FROM temp.chosen c CROSS JOIN ratchet.scheduler_job j ON j.job_id = c.job_id
)
