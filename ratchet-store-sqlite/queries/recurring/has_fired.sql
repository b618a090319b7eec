SELECT EXISTS (
    SELECT 1 FROM ratchet.scheduler_recurring_fire f WHERE f.master_id = :master_id AND f.fire_instant = :instant
) AS fired
