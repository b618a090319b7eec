-- Writes the counters of batches, each row once.
UPDATE ratchet.scheduler_batch_metrics AS m
SET child_execution_ms = min(
        max(m.child_execution_ms, -9223372036854775807 - min(g.value ->> 1, 0)),
        9223372036854775807 - max(g.value ->> 1, 0)
    ) + (g.value ->> 1)
FROM jsonb_each(:[batch_ids, ran_ms]) g
WHERE m.batch_id = unhex(g.value ->> 0) AND g.value ->> 1 <> 0;

UPDATE ratchet.scheduler_batch AS b
SET total_items = g.value ->> 1, completed_items = g.value ->> 2, failed_items = g.value ->> 3, closed = g.value ->> 4,
    completed_at = g.value ->> 5
FROM jsonb_each(:[batch_ids, totals, completed, failed, closed, completed_at]) g
WHERE b.batch_id = unhex(g.value ->> 0)
