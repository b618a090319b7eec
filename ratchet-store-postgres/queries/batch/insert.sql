WITH batch AS (
    INSERT INTO ratchet.scheduler_batch (batch_id, total_items, closed, created_at)
    VALUES (:batch_id::uuid, 0, :closed::boolean, :now::timestamptz)
)
INSERT INTO ratchet.scheduler_batch_metrics (batch_id) VALUES (:batch_id::uuid)
