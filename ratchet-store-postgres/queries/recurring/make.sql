-- Makes a schedule of a job that was stored in this transaction: nobody has seen its queue row.
WITH unqueued AS (
    DELETE FROM ratchet.scheduler_job_queue q WHERE q.job_id = :job_id::uuid
),
key AS (
    UPDATE ratchet.scheduler_business_key_reservation r
    SET owner_table = 'RECURRING'
    WHERE r.business_key = :business_key::text AND r.owner_job_id = :job_id::uuid
)
UPDATE ratchet.scheduler_job j
SET cron_expr = :cron::text, zone_id = :zone::text, next_fire = :next_fire::timestamptz, rec_status = 'A'
WHERE j.job_id = :job_id::uuid
