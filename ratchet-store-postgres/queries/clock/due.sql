-- After the clock went back: jobs that would be due by now are due now, and delays from before stay as long as they
-- were; unless a job got its due time since then.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
-- Several nodes do this at the same time: what another one holds is its affair.
chosen AS MATERIALIZED (
    SELECT q.job_id
    FROM ratchet.scheduler_job_queue q CROSS JOIN clock c
    WHERE q.status <> 'RUNNING' AND q.scheduled_time > c.now
      AND q.scheduled_time <= c.now + CASE WHEN q.updated_at > c.now THEN 2 ELSE 1 END * :by_ms::bigint * interval '1 millisecond'
      AND NOT (q.updated_at BETWEEN c.now - :within_ms::bigint * interval '1 millisecond' AND c.now)
    LIMIT :lim::bigint
    FOR UPDATE OF q SKIP LOCKED
)
UPDATE ratchet.scheduler_job_queue q
SET scheduled_time = greatest(c.now, q.scheduled_time - :by_ms::bigint * interval '1 millisecond'), updated_at = c.now
FROM clock c, chosen h
WHERE q.job_id = h.job_id
