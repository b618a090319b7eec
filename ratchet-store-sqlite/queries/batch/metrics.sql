SELECT
    b.total_items, b.completed_items, b.failed_items, m.child_execution_ms,
    b.completed_at - b.created_at AS total_duration_ms
FROM ratchet.scheduler_batch b
JOIN ratchet.scheduler_batch_metrics m ON m.batch_id = b.batch_id
WHERE b.batch_id = :batch_id
