-- Takes the best due jobs of some queues, in no order. docs/stores/postgresql.md explains each step. A queue with parked
-- jobs is left to pull.sql.
WITH clock AS MATERIALIZED (
    SELECT t.now, t.now - least(:boost_ms::bigint, 1000000000000) * interval '1 millisecond' AS unboosted
    FROM (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))::timestamptz(3) AS now) t
),
-- The lock lets beats pass, and keeps a recoverer waiting until this claim can be seen.
me AS MATERIALIZED (
    SELECT n.node_id
    FROM ratchet.scheduler_node n
    WHERE n.node_id = :owner::text AND NOT n.reaped AND n.lease_until > (SELECT c.now FROM clock c)
    FOR KEY SHARE
),
-- The queues that may be looked at, and whether anything in them is parked.
open AS MATERIALIZED (
    SELECT
        w.queue, w.lim, w.place,
        EXISTS (
            SELECT FROM ratchet.scheduler_job_queue q
            WHERE q.queue = w.queue AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
        ) AS parked
    FROM unnest(:queues::text[], :limits::bigint[]) WITH ORDINALITY AS w (queue, lim, place)
    WHERE EXISTS (SELECT FROM me)
      AND NOT EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = w.queue)
),
-- At which of the five levels something is due: how many they are, and one of them.
wanted AS MATERIALIZED (
    SELECT w.queue, w.lim, w.place, due.levels, due.level
    FROM open w
    CROSS JOIN LATERAL (
        SELECT count(*) AS levels, max(level) AS level
        FROM clock c
        CROSS JOIN generate_series(0, 4) AS level
        CROSS JOIN LATERAL (
            SELECT
            FROM ratchet.scheduler_job_queue q
            WHERE q.queue = w.queue AND q.priority = level AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= c.now
            LIMIT 1
        ) first
    ) due
    WHERE NOT w.parked
),
-- Several levels: the heads of each, without locks. Inside one level older always means better, so the best rows are among
-- the first of each level. `spare` more are read if others are known to hold some of them.
heads AS MATERIALIZED (
    SELECT w.place AS queue_place, b.tid, b.boosted, b.scheduled_time, b.job_id
    FROM wanted w
    CROSS JOIN LATERAL (
        SELECT
            h.tid, h.scheduled_time, h.job_id,
            -- Most jobs are too young for a boost, and comparing costs less than dividing.
            level + CASE
                WHEN h.scheduled_time > c.unboosted OR :boost_ms::bigint = 0 THEN 0
                ELSE (
                    date_part('epoch', c.now - greatest(h.scheduled_time, '1970-01-01 00:00:00+00')) * 1000
                )::bigint / :boost_ms::bigint
            END AS boosted
        FROM clock c
        CROSS JOIN generate_series(0, 4) AS level
        CROSS JOIN LATERAL (
            SELECT q.ctid AS tid, q.scheduled_time, q.job_id
            FROM ratchet.scheduler_job_queue q
            WHERE q.queue = w.queue AND q.priority = level AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= c.now
            ORDER BY q.scheduled_time, q.job_id
            LIMIT w.lim + :spare::bigint
        ) h
        ORDER BY boosted DESC, h.scheduled_time, h.job_id
        LIMIT w.lim + :spare::bigint
    ) b
    WHERE w.levels > 1
),
-- The places of the jobs, locked. What others hold is passed over. A row stays where it is for as long as this statement
-- can see it, so its place finds it without an index. (`blocked_by < 1`: so that no plan takes the index of the heads.)
taken AS MATERIALIZED (
    SELECT
        -- One level: its index is in order already.
        ARRAY(
            SELECT l.tid
            FROM wanted w
            CROSS JOIN LATERAL (
                SELECT q.ctid AS tid
                FROM ratchet.scheduler_job_queue q
                WHERE q.queue = w.queue AND q.priority = w.level AND q.status = 'PENDING' AND q.blocked_by = 0
                  AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c)
                ORDER BY q.scheduled_time, q.job_id
                LIMIT w.lim
                FOR UPDATE SKIP LOCKED
            ) l
            WHERE w.levels = 1
        ) AS of_one_level,
        -- Several without spare heads: all of them in one scan.
        ARRAY(
            SELECT q.ctid
            FROM ratchet.scheduler_job_queue q
            WHERE :spare::bigint = 0 AND q.ctid = ANY(ARRAY(SELECT h.tid FROM heads h))
              AND q.status = 'PENDING' AND q.blocked_by < 1 AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c)
            FOR UPDATE SKIP LOCKED
        )
        -- With spare ones: in their order, until the limit is reached.
        || ARRAY(
            SELECT l.tid
            FROM wanted w
            CROSS JOIN LATERAL (
                SELECT q.ctid AS tid
                FROM heads h
                JOIN ratchet.scheduler_job_queue q ON q.ctid = h.tid
                WHERE h.queue_place = w.place
                  AND q.status = 'PENDING' AND q.blocked_by < 1 AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c)
                ORDER BY h.boosted DESC, h.scheduled_time, h.job_id
                LIMIT w.lim
                FOR UPDATE OF q SKIP LOCKED
            ) l
            WHERE :spare::bigint > 0 AND w.levels > 1
        ) AS of_several
),
claimed AS (
    UPDATE ratchet.scheduler_job_queue q
    SET status = 'RUNNING', picked_by = :owner::text, picked_at = (SELECT c.now FROM clock c),
        version = least(q.version, 9223372036854775806) + 1, updated_at = (SELECT c.now FROM clock c)
    WHERE q.ctid = ANY((SELECT t.of_one_level || t.of_several FROM taken t)::tid[])
)
-- The rows as they were before the update, which runs while they are on their way: nobody else can change them by now.
-- A null is cheaper to send and to read than a zero, and most of these are zero.
SELECT
    NULL::bigint AS missed, q.job_id, least(q.version, 9223372036854775806) + 1 AS version, q.queue, q.scheduled_time,
    (SELECT c.now FROM clock c) AS picked_at, q.job_type, q.priority, nullif(q.attempts, 0) AS attempts,
    nullif(q.crash_count, 0) AS crash_count, nullif(q.max_retries, 0) AS max_retries, q.timeout_ms, q.business_key,
    nullif(q.edge_count, 0) AS edge_count, nullif(q.cancel_requested, false) AS cancel_requested,
    nullif(q.expires_at <= (SELECT c.now FROM clock c), false) AS expired, NULL::bigint[] AS parked
FROM ratchet.scheduler_job_queue q
WHERE q.ctid = ANY((SELECT t.of_one_level || t.of_several FROM taken t)::tid[])
UNION ALL
-- One row more: how many of several levels' heads others took first, and the places of the queues with parked jobs.
SELECT
    (
        SELECT coalesce(sum(least(w.lim, (SELECT count(*) FROM heads h WHERE h.queue_place = w.place))), 0)
        FROM wanted w
    )::bigint - cardinality(t.of_several),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    (SELECT array_agg(w.place) FROM open w WHERE w.parked)
FROM taken t
