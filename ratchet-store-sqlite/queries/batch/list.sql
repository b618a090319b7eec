SELECT b.batch_id, b.total_items, b.completed_items, b.failed_items, b.closed, b.created_at, b.completed_at
FROM ratchet.scheduler_batch b
WHERE :after IS NULL OR b.batch_id < :after
ORDER BY b.batch_id DESC
LIMIT :lim
