-- Notes a fire and moves the master on, unless it fired for this instant before.
UPDATE ratchet.scheduler_job
SET next_fire = :next_fire
WHERE job_id = :master_id AND NOT EXISTS (
    SELECT 1 FROM ratchet.scheduler_recurring_fire f WHERE f.master_id = :master_id AND f.fire_instant = :instant
);

INSERT INTO ratchet.scheduler_recurring_fire (master_id, fire_instant, job_id, created_at)
VALUES (:master_id, :instant, :job_id, :now)
ON CONFLICT DO NOTHING
