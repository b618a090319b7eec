-- Notes a fire and moves the master on, unless it fired for this instant before. The master's row is held.
WITH fire AS (
    INSERT INTO ratchet.scheduler_recurring_fire (master_id, fire_instant, job_id, created_at)
    VALUES (:master_id::uuid, :instant::timestamptz, :job_id::uuid, :now::timestamptz)
    ON CONFLICT DO NOTHING
    RETURNING master_id
)
UPDATE ratchet.scheduler_job j
SET next_fire = :next_fire::timestamptz
FROM fire f
WHERE j.job_id = ANY(ARRAY[f.master_id])
