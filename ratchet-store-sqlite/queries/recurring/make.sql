-- Makes a schedule of a job that was stored in this transaction: nobody has seen its queue row.
DELETE FROM ratchet.scheduler_job_queue WHERE job_id = :job_id;

UPDATE ratchet.scheduler_business_key_reservation
SET owner_table = 'RECURRING'
WHERE business_key = :business_key AND owner_job_id = :job_id;

UPDATE ratchet.scheduler_job
SET cron_expr = :cron, zone_id = :zone, next_fire = :next_fire, rec_status = 'A'
WHERE job_id = :job_id
