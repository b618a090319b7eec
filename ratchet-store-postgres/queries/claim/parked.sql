-- Takes jobs of one queue that are parked on one thing, whoever has what they lack.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
me AS MATERIALIZED (
    SELECT n.node_id
    FROM ratchet.scheduler_node n
    WHERE n.node_id = :owner::text AND NOT n.reaped AND n.lease_until > (SELECT c.now FROM clock c)
      AND NOT EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = :queue::text)
    FOR KEY SHARE
),
locked AS MATERIALIZED (
    SELECT q.job_id
    FROM ratchet.scheduler_job_queue q
    WHERE EXISTS (SELECT FROM me) AND q.queue = :queue::text AND q.parked_on = :parked_on::text
      AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.scheduled_time <= (SELECT c.now FROM clock c)
    ORDER BY q.job_id
    LIMIT :lim::bigint
    FOR UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE ratchet.scheduler_job_queue q
    SET status = 'RUNNING', picked_by = :owner::text, picked_at = c.now,
        version = least(q.version, 9223372036854775806) + 1, parked_on = NULL, updated_at = c.now
    FROM locked l CROSS JOIN clock c
    WHERE q.job_id = ANY(ARRAY[l.job_id])
    RETURNING
        q.job_id, q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at, q.attempts,
        q.crash_count, q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
        coalesce(q.expires_at <= c.now, false) AS expired
)
SELECT r.* FROM claimed r ORDER BY r.job_id
