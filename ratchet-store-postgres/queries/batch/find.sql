SELECT
    g.place, b.batch_id, b.total_items, b.completed_items, b.failed_items, b.closed, b.created_at, b.completed_at
FROM unnest(:batch_ids::uuid[]) WITH ORDINALITY AS g (wanted, place)
JOIN ratchet.scheduler_batch b ON b.batch_id = g.wanted
