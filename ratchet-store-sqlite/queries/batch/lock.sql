SELECT b.batch_id, b.total_items, b.completed_items, b.failed_items, b.closed, b.created_at, b.completed_at
FROM ratchet.scheduler_batch b
WHERE b.batch_id IN (SELECT unhex(g.value) FROM json_each(:batch_ids) g)
ORDER BY b.batch_id
