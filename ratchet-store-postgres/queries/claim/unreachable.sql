-- Takes jobs that no claim will ever find: nobody can ask for their queue or priority, or they are never due. Reads every
-- queue row.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
me AS MATERIALIZED (
    SELECT n.node_id
    FROM ratchet.scheduler_node n
    WHERE n.node_id = :owner::text AND NOT n.reaped AND n.lease_until > (SELECT c.now FROM clock c)
    FOR KEY SHARE
),
locked AS MATERIALIZED (
    SELECT q.job_id
    FROM ratchet.scheduler_job_queue q
    WHERE EXISTS (SELECT FROM me) AND q.status = 'PENDING'
      AND (
        q.priority NOT BETWEEN 0 AND 4 OR q.blocked_by < 0 OR q.scheduled_time > '9998-12-31 23:59:59.999+00'
        OR q.queue = '' OR octet_length(q.queue) > 64 OR q.queue ~ '[\u0001-\u001f\u007f-\u009f]'
      )
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
