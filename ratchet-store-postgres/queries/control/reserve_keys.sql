-- Reserves the keys of ended jobs again; answers those that did not get theirs. The rows of the jobs are held. Of two
-- that want the same key, the one that was named first gets it.
WITH wanted AS MATERIALIZED (
    SELECT g.place, j.job_id, j.business_key
    FROM unnest(:job_ids::uuid[]) WITH ORDINALITY AS g (job_id, place)
    JOIN ratchet.scheduler_job j ON j.job_id = ANY(ARRAY[g.job_id])
    WHERE j.business_key IS NOT NULL
),
reserved AS (
    INSERT INTO ratchet.scheduler_business_key_reservation (business_key, owner_job_id, owner_table, reserved_at)
    SELECT w.business_key, w.job_id, 'QUEUE', :now::timestamptz
    FROM wanted w
    ORDER BY w.business_key, w.place
    ON CONFLICT DO NOTHING
    RETURNING owner_job_id
)
SELECT w.job_id, w.business_key
FROM wanted w
WHERE w.job_id NOT IN (SELECT r.owner_job_id FROM reserved r)
