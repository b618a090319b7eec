-- Locks batches, in the order of their ids as everybody does.
SELECT b.batch_id, b.total_items, b.completed_items, b.failed_items, b.closed, b.created_at, b.completed_at
FROM ratchet.scheduler_batch b
WHERE b.batch_id = ANY(:batch_ids::uuid[])
ORDER BY b.batch_id
FOR UPDATE
