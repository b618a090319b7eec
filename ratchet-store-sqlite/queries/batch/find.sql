SELECT
    g.key + 1 AS place, b.batch_id, b.total_items, b.completed_items, b.failed_items, b.closed, b.created_at, b.completed_at
FROM json_each(:batch_ids) g
CROSS JOIN ratchet.scheduler_batch b ON b.batch_id = unhex(g.value)
