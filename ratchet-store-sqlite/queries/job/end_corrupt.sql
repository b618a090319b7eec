-- Ends jobs as FAILED that have neither a queue row nor an end, and schedules; frees their keys and permits.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id, now)
SELECT j.job_id, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN json_each(:job_ids) g
CROSS JOIN ratchet.scheduler_job j ON j.job_id = unhex(g.value)
WHERE j.terminal_status IS NULL
  AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_job_queue q WHERE q.job_id = j.job_id);

UPDATE ratchet.scheduler_job AS j
SET terminal_status = 'FAILED', rec_status = NULL, terminal_error = :error, error_fingerprint = :fingerprint,
    version = min(j.version, 9223372036854775806) + 1, scheduled_time = coalesce(j.scheduled_time, j.created_at),
    terminated_at = c.now
FROM temp.chosen c
WHERE j.job_id = c.job_id;

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE owner_job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_resource_permit WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

SELECT j.job_id, j.batch_id FROM temp.chosen c CROSS JOIN ratchet.scheduler_job j ON j.job_id = c.job_id
