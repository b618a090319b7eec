-- Writes the counters of batches that are held, each row once.
WITH given AS MATERIALIZED (
    SELECT g.*
    FROM unnest(
        :batch_ids::uuid[], :totals::bigint[], :completed::bigint[], :failed::bigint[], :closed::boolean[],
        :completed_at::timestamptz[], :ran_ms::bigint[]
    ) AS g (batch_id, total, completed, failed, closed, completed_at, ran_ms)
),
metrics AS (
    UPDATE ratchet.scheduler_batch_metrics m
    SET child_execution_ms = least(
            greatest(m.child_execution_ms, -9223372036854775807 - least(g.ran_ms, 0)),
            9223372036854775807 - greatest(g.ran_ms, 0)
        ) + g.ran_ms
    FROM given g
    WHERE m.batch_id = g.batch_id AND g.ran_ms <> 0
)
UPDATE ratchet.scheduler_batch b
SET total_items = g.total, completed_items = g.completed, failed_items = g.failed, closed = g.closed,
    completed_at = g.completed_at
FROM given g
WHERE b.batch_id = g.batch_id
