-- Reserves the keys of ended jobs again; answers those that did not get theirs. The rows of the jobs are held.
WITH reserved AS (
    INSERT INTO ratchet.scheduler_business_key_reservation (business_key, owner_job_id, owner_table, reserved_at)
    SELECT j.business_key, j.job_id, 'QUEUE', :now::timestamptz
    FROM ratchet.scheduler_job j
    WHERE j.job_id = ANY(:job_ids::uuid[]) AND j.business_key IS NOT NULL
    ORDER BY j.business_key
    ON CONFLICT DO NOTHING
    RETURNING owner_job_id
)
SELECT j.job_id, j.business_key
FROM ratchet.scheduler_job j
WHERE j.job_id = ANY(:job_ids::uuid[]) AND j.business_key IS NOT NULL
  AND j.job_id NOT IN (SELECT r.owner_job_id FROM reserved r)
