-- Takes named jobs by the rules of a claim, in the order of the names. (`blocked_by < 1`: see claim.sql.)
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
me AS MATERIALIZED (
    SELECT n.node_id
    FROM ratchet.scheduler_node n
    WHERE n.node_id = :owner::text AND NOT n.reaped AND n.lease_until > (SELECT c.now FROM clock c)
    FOR KEY SHARE
),
wanted AS MATERIALIZED (
    SELECT w.job_id, min(w.place) AS place
    FROM unnest(:job_ids::uuid[]) WITH ORDINALITY AS w (job_id, place)
    GROUP BY w.job_id
),
locked AS MATERIALIZED (
    SELECT q.job_id, w.place
    FROM wanted w JOIN ratchet.scheduler_job_queue q ON q.job_id = ANY(ARRAY[w.job_id])
    WHERE EXISTS (SELECT FROM me) AND q.status = 'PENDING' AND q.blocked_by < 1
      AND q.scheduled_time <= (SELECT c.now FROM clock c)
    FOR UPDATE OF q SKIP LOCKED
),
claimed AS (
    UPDATE ratchet.scheduler_job_queue q
    SET status = 'RUNNING', picked_by = :owner::text, picked_at = c.now,
        version = least(q.version, 9223372036854775806) + 1, parked_on = NULL, updated_at = c.now
    FROM locked l CROSS JOIN clock c
    WHERE q.job_id = ANY(ARRAY[l.job_id])
    RETURNING
        l.place, q.job_id, q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at,
        q.attempts, q.crash_count, q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
        coalesce(q.expires_at <= c.now, false) AS expired
)
SELECT r.* FROM claimed r ORDER BY r.place
