-- Takes the best due jobs of one queue in which jobs are parked: fresh ones, and those for which this node has what they
-- lack. Otherwise as claim.sql. `taken_on` is what this call has taken from other queues so far. With `park`, fresh jobs
-- that lack what others are parked on are parked as well, instead of being handed out.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT t.now, t.now - least(:boost_ms::bigint, 1000000000000) * interval '1 millisecond' AS unboosted
    FROM (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))::timestamptz(3) AS now) t
),
me AS MATERIALIZED (
    SELECT n.methods
    FROM ratchet.scheduler_node n
    WHERE n.node_id = :owner::text AND NOT n.reaped AND n.lease_until > (SELECT c.now FROM clock c)
      AND NOT EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = :queue::text)
    FOR KEY SHARE
),
-- What jobs are parked on, each found by one step along an index.
reasons AS (
    (
        SELECT q.parked_on FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue::text AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
        ORDER BY q.parked_on LIMIT 1
    )
    UNION ALL
    SELECT n.parked_on
    FROM reasons r
    CROSS JOIN LATERAL (
        SELECT q.parked_on FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue::text AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on > r.parked_on
        ORDER BY q.parked_on LIMIT 1
    ) n
),
-- For how many of each this node has what they lack.
room AS MATERIALIZED (
    SELECT r.parked_on, least(greatest(coalesce(f.free, 0), 0), :lim::bigint + :spare::bigint) AS free
    FROM reasons r
    CROSS JOIN me m
    LEFT JOIN LATERAL (
        SELECT :lim::bigint + :spare::bigint AS free
        WHERE starts_with(r.parked_on, 'method:') AND substr(r.parked_on, 8) = ANY(m.methods)
        UNION ALL
        -- Nobody knows what it lacks.
        SELECT :lim::bigint + :spare::bigint
        WHERE NOT starts_with(r.parked_on, 'method:') AND NOT starts_with(r.parked_on, 'resource:')
          AND NOT starts_with(r.parked_on, 'suspect:')
        UNION ALL
        SELECT
            l.max_concurrent
            - (SELECT count(*) FROM ratchet.scheduler_resource_permit p WHERE p.resource_name = l.resource_name)
            - (SELECT count(*) FROM unnest(:taken_on::text[]) AS t (parked_on) WHERE t.parked_on = r.parked_on)
        FROM ratchet.scheduler_resource_limit l
        WHERE starts_with(r.parked_on, 'resource:') AND l.resource_name = substr(r.parked_on, 10)
          AND l.max_concurrent <= 4294967295 AND l.retry_delay_ms >= 0
    ) f ON true
),
-- The heads of the queue, of what this node can take, and what has expired, which anybody can end.
found AS MATERIALIZED (
    SELECT h.tid, h.scheduled_time, h.job_id, level, NULL::text AS parked_on
    FROM clock c
    CROSS JOIN me
    CROSS JOIN generate_series(0, 4) AS level
    CROSS JOIN LATERAL (
        SELECT q.ctid AS tid, q.scheduled_time, q.job_id
        FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue::text AND q.priority = level AND q.status = 'PENDING' AND q.blocked_by = 0
          AND q.parked_on IS NULL AND q.scheduled_time <= c.now
        ORDER BY q.scheduled_time, q.job_id
        LIMIT :lim::bigint + :spare::bigint
    ) h
    UNION ALL
    (
        SELECT b.tid, b.scheduled_time, b.job_id, b.level, r.parked_on
        FROM room r
        CROSS JOIN LATERAL (
            SELECT h.tid, h.scheduled_time, h.job_id, level
            FROM clock c
            CROSS JOIN generate_series(0, 4) AS level
            CROSS JOIN LATERAL (
                SELECT q.ctid AS tid, q.scheduled_time, q.job_id
                FROM ratchet.scheduler_job_queue q
                WHERE q.queue = :queue::text AND q.parked_on = r.parked_on AND q.priority = level AND q.status = 'PENDING'
                  AND q.blocked_by = 0 AND q.scheduled_time <= c.now
                ORDER BY q.scheduled_time, q.job_id
                LIMIT r.free
            ) h
            ORDER BY
                level + CASE
                    WHEN h.scheduled_time > c.unboosted OR :boost_ms::bigint = 0 THEN 0
                    ELSE (
                        date_part('epoch', c.now - greatest(h.scheduled_time, '1970-01-01 00:00:00+00')) * 1000
                    )::bigint / :boost_ms::bigint
                END DESC,
                h.scheduled_time, h.job_id
            LIMIT r.free
        ) b
        WHERE r.free > 0
        UNION
        SELECT e.*
        FROM clock c
        CROSS JOIN me
        CROSS JOIN LATERAL (
            SELECT q.ctid AS tid, q.scheduled_time, q.job_id, q.priority::integer AS level, q.parked_on
            FROM ratchet.scheduler_job_queue q
            WHERE q.queue = :queue::text AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
              AND q.expires_at <= c.now AND q.scheduled_time <= c.now
            ORDER BY q.expires_at, q.job_id
            LIMIT :lim::bigint + :spare::bigint
        ) e
    )
),
heads AS MATERIALIZED (
    SELECT
        f.tid, f.scheduled_time, f.job_id, f.parked_on,
        f.level + CASE
            WHEN f.scheduled_time > c.unboosted OR :boost_ms::bigint = 0 THEN 0
            ELSE (
                date_part('epoch', c.now - greatest(f.scheduled_time, '1970-01-01 00:00:00+00')) * 1000
            )::bigint / :boost_ms::bigint
        END AS boosted
    FROM found f CROSS JOIN clock c
    ORDER BY boosted DESC, f.scheduled_time, f.job_id
    LIMIT :lim::bigint + :spare::bigint
),
-- What they need of that which jobs are parked on, and whether there is too little of it for a fresh one.
needs AS MATERIALIZED (
    SELECT
        h.tid, h.boosted, h.scheduled_time, h.job_id, h.parked_on, r.parked_on AS need,
        h.parked_on IS NULL AND coalesce(
            row_number() OVER (PARTITION BY r.parked_on ORDER BY h.boosted DESC, h.scheduled_time, h.job_id) > r.free,
            false
        ) AS lacks
    FROM heads h
    LEFT JOIN LATERAL (
        SELECT 'method:' || j.target || '.' || j.method AS method, 'resource:' || j.resource_name AS resource
        FROM ratchet.scheduler_job j
        WHERE :park::boolean AND EXISTS (SELECT FROM room r WHERE r.free < :lim::bigint + :spare::bigint)
          AND h.parked_on IS NULL AND j.job_id = ANY(ARRAY[h.job_id])
    ) j ON true
    LEFT JOIN room m ON m.parked_on = j.method AND m.free = 0
    LEFT JOIN room r ON r.parked_on = coalesce(h.parked_on, m.parked_on, j.resource)
),
taken AS MATERIALIZED (
    SELECT ARRAY(
        SELECT q.ctid
        FROM needs n
        JOIN ratchet.scheduler_job_queue q ON q.ctid = n.tid
        WHERE NOT n.lacks AND q.status = 'PENDING' AND q.blocked_by < 1
          AND q.scheduled_time <= (SELECT c.now FROM clock c) AND q.parked_on IS NOT DISTINCT FROM n.parked_on
        ORDER BY n.boosted DESC, n.scheduled_time, n.job_id
        LIMIT :lim::bigint
        FOR UPDATE OF q SKIP LOCKED
    ) AS tids
),
-- Those before the last that is taken.
lacking AS MATERIALIZED (
    SELECT q.ctid AS tid, n.need
    FROM (
        SELECT
            n.tid, n.need, n.lacks,
            count(*) FILTER (WHERE NOT n.lacks) OVER (ORDER BY n.boosted DESC, n.scheduled_time, n.job_id) AS better
        FROM needs n
    ) n
    JOIN ratchet.scheduler_job_queue q ON q.ctid = n.tid
    WHERE n.lacks AND n.better < :lim::bigint AND q.status = 'PENDING' AND q.blocked_by < 1 AND q.parked_on IS NULL
    FOR UPDATE OF q SKIP LOCKED
),
parked AS (
    UPDATE ratchet.scheduler_job_queue q
    -- As if it had been claimed and parked.
    SET parked_on = l.need, version = least(q.version, 9223372036854775805) + 2, updated_at = (SELECT c.now FROM clock c)
    FROM lacking l
    WHERE q.ctid = l.tid
),
claimed AS (
    UPDATE ratchet.scheduler_job_queue q
    SET status = 'RUNNING', picked_by = :owner::text, picked_at = (SELECT c.now FROM clock c),
        version = least(q.version, 9223372036854775806) + 1, parked_on = NULL, updated_at = (SELECT c.now FROM clock c)
    WHERE q.ctid = ANY((SELECT t.tids FROM taken t)::tid[])
)
-- The rows as they were before the update.
SELECT
    NULL::bigint AS missed, q.job_id, least(q.version, 9223372036854775806) + 1 AS version, q.queue, q.scheduled_time,
    (SELECT c.now FROM clock c) AS picked_at, q.job_type, q.priority, nullif(q.attempts, 0) AS attempts,
    nullif(q.crash_count, 0) AS crash_count, nullif(q.max_retries, 0) AS max_retries, q.timeout_ms, q.business_key,
    nullif(q.edge_count, 0) AS edge_count, nullif(q.cancel_requested, false) AS cancel_requested,
    nullif(q.expires_at <= (SELECT c.now FROM clock c), false) AS expired, q.parked_on,
    NULL::boolean AS none_parked
FROM ratchet.scheduler_job_queue q
WHERE q.ctid = ANY((SELECT t.tids FROM taken t)::tid[])
UNION ALL
-- One row more: how many of the heads others took first or lack something, and whether nothing was parked at all.
SELECT
    least(:lim::bigint, (SELECT count(*) FROM heads)) - cardinality(t.tids),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NOT EXISTS (SELECT FROM reasons)
FROM taken t
