INSERT INTO ratchet.scheduler_batch (batch_id, total_items, closed, created_at) VALUES (:batch_id, 0, :closed, :now);

INSERT INTO ratchet.scheduler_batch_metrics (batch_id) VALUES (:batch_id)
