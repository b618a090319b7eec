-- Takes the best due jobs of some queues, in no order. docs/stores/postgresql.md explains each step.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
-- The lock lets beats pass, and keeps a recoverer waiting until this claim can be seen.
me AS MATERIALIZED (
    SELECT n.node_id
    FROM ratchet.scheduler_node n
    WHERE n.node_id = :owner::text AND NOT n.reaped AND n.lease_until > (SELECT c.now FROM clock c)
    FOR KEY SHARE
),
wanted AS MATERIALIZED (
    SELECT w.queue, w.lim, w.place
    FROM unnest(:queues::text[], :limits::bigint[]) WITH ORDINALITY AS w (queue, lim, place)
    WHERE EXISTS (SELECT FROM me)
      AND NOT EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = w.queue)
),
-- Five index heads for each queue, without locks. Inside one level older always means better, so the best rows are
-- among the first of each level; a few more are read because others may hold some of them.
heads AS MATERIALIZED (
    SELECT w.place AS queue_place, b.tid, b.boosted, b.scheduled_time, b.job_id
    FROM wanted w
    CROSS JOIN LATERAL (
        SELECT
            h.tid, h.scheduled_time, h.job_id,
            level + CASE
                WHEN :boost_ms::bigint > 0
                THEN (date_part('epoch', c.now - h.scheduled_time) * 1000)::bigint / :boost_ms::bigint
                ELSE 0
            END AS boosted
        FROM clock c
        CROSS JOIN generate_series(0, 4) AS level
        CROSS JOIN LATERAL (
            SELECT q.ctid AS tid, q.scheduled_time, q.job_id
            FROM ratchet.scheduler_job_queue q
            WHERE q.queue = w.queue AND q.priority = level AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= c.now
            ORDER BY q.scheduled_time, q.job_id
            LIMIT w.lim + :spare::bigint
        ) h
        ORDER BY boosted DESC, h.scheduled_time, h.job_id
        LIMIT w.lim + :spare::bigint
    ) b
),
-- In their order, until the limit is reached; what others hold is passed over. A row stays where it is for as long as
-- this statement can see it, so its place finds it without an index.
locked AS MATERIALIZED (
    SELECT l.tid
    FROM wanted w
    CROSS JOIN LATERAL (
        SELECT q.ctid AS tid
        FROM heads h
        JOIN ratchet.scheduler_job_queue q ON q.ctid = h.tid
        WHERE h.queue_place = w.place
          AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.scheduled_time <= (SELECT c.now FROM clock c)
        ORDER BY h.boosted DESC, h.scheduled_time, h.job_id
        LIMIT w.lim
        FOR UPDATE OF q SKIP LOCKED
    ) l
),
claimed AS (
    UPDATE ratchet.scheduler_job_queue q
    SET status = 'RUNNING', picked_by = :owner::text, picked_at = (SELECT c.now FROM clock c),
        version = q.version + 1, updated_at = (SELECT c.now FROM clock c)
    WHERE q.ctid = ANY(ARRAY(SELECT l.tid FROM locked l))
    RETURNING
        q.job_id, q.version, q.queue, q.scheduled_time, q.picked_at, q.job_type, q.priority, q.attempts,
        q.crash_count, q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
        coalesce(q.expires_at <= q.picked_at, false) AS expired
)
SELECT NULL::bigint AS missed, r.* FROM claimed r
UNION ALL
-- One row more: how many jobs others held, if a limit was not reached for that.
SELECT
    coalesce((
        SELECT sum(least(w.lim, (SELECT count(*) FROM heads h WHERE h.queue_place = w.place)))
        FROM wanted w
    ), 0)::bigint - (SELECT count(*) FROM claimed),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM clock c
