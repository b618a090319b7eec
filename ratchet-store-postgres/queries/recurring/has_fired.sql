SELECT EXISTS (
    SELECT FROM ratchet.scheduler_recurring_fire f
    WHERE f.master_id = :master_id::uuid AND f.fire_instant = :instant::timestamptz
) AS fired
