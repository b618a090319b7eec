-- Takes the best due jobs of one queue in which jobs are parked: fresh ones, and those for which this node has what they
-- lack. `taken_on` is what this call has taken from other queues so far. The heads of what is parked are read by the
-- trigger in connect/choose_parked.sql. With `park`, fresh jobs that lack what others are parked on are parked as well,
-- instead of being handed out.
DELETE FROM temp.wanted_parking;

DELETE FROM temp.parked_head;

DELETE FROM temp.chosen;

-- For how many of each thing that jobs are parked on this node has what they lack.
INSERT INTO temp.wanted_parking (queue, parked_on, free, boost_ms, now)
WITH RECURSIVE reasons AS (
    SELECT min(q.parked_on) AS parked_on
    FROM ratchet.scheduler_job_queue q
    WHERE q.queue = :queue AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(q.parked_on)
        FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on > r.parked_on
    )
    FROM reasons r
    WHERE r.parked_on IS NOT NULL
)
SELECT :queue, f.parked_on, max(min(f.free, :lim + :spare), 0), :boost_ms, f.now
FROM (
    SELECT
        r.parked_on, c.now,
        CASE
            WHEN substr(r.parked_on, 1, 7) = 'method:' THEN
                CASE WHEN substr(r.parked_on, 8) IN (SELECT m.value FROM json_each(n.methods) m) THEN :lim + :spare ELSE 0 END
            WHEN substr(r.parked_on, 1, 9) = 'resource:' THEN
                coalesce(
                    (
                        SELECT l.max_concurrent FROM ratchet.scheduler_resource_limit l
                        WHERE l.resource_name = substr(r.parked_on, 10)
                          AND l.max_concurrent <= 4294967295 AND l.retry_delay_ms >= 0
                    ), 0
                )
                - (
                    SELECT count(*) FROM ratchet.scheduler_resource_permit p
                    WHERE p.resource_name = substr(r.parked_on, 10)
                )
                - (SELECT count(*) FROM json_each(:taken_on) t WHERE t.value = r.parked_on)
            WHEN substr(r.parked_on, 1, 8) = 'suspect:' THEN 0
            -- Nobody knows what it lacks.
            ELSE :lim + :spare
        END AS free
    FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
    CROSS JOIN ratchet.scheduler_node n
    CROSS JOIN reasons r
    WHERE n.node_id = :owner AND NOT n.reaped AND n.lease_until > c.now AND r.parked_on IS NOT NULL
) f;

INSERT INTO temp.chosen (job_id, now, parked_on, is_fresh)
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now
)
SELECT h.job_id, c.now, h.parked_on, h.parked_on IS NULL
FROM clock c
CROSS JOIN (
    SELECT * FROM (
        SELECT 0 AS level, q.scheduled_time, q.job_id, NULL AS parked_on FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue AND q.priority = 0 AND q.status = 'PENDING' AND q.blocked_by = 0
          AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c) AND length(q.job_id) = 16
        ORDER BY q.scheduled_time, q.job_id LIMIT :lim + :spare
    )
    UNION ALL
    SELECT * FROM (
        SELECT 1, q.scheduled_time, q.job_id, NULL FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue AND q.priority = 1 AND q.status = 'PENDING' AND q.blocked_by = 0
          AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c) AND length(q.job_id) = 16
        ORDER BY q.scheduled_time, q.job_id LIMIT :lim + :spare
    )
    UNION ALL
    SELECT * FROM (
        SELECT 2, q.scheduled_time, q.job_id, NULL FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue AND q.priority = 2 AND q.status = 'PENDING' AND q.blocked_by = 0
          AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c) AND length(q.job_id) = 16
        ORDER BY q.scheduled_time, q.job_id LIMIT :lim + :spare
    )
    UNION ALL
    SELECT * FROM (
        SELECT 3, q.scheduled_time, q.job_id, NULL FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue AND q.priority = 3 AND q.status = 'PENDING' AND q.blocked_by = 0
          AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c) AND length(q.job_id) = 16
        ORDER BY q.scheduled_time, q.job_id LIMIT :lim + :spare
    )
    UNION ALL
    SELECT * FROM (
        SELECT 4, q.scheduled_time, q.job_id, NULL FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue AND q.priority = 4 AND q.status = 'PENDING' AND q.blocked_by = 0
          AND q.parked_on IS NULL AND q.scheduled_time <= (SELECT c.now FROM clock c) AND length(q.job_id) = 16
        ORDER BY q.scheduled_time, q.job_id LIMIT :lim + :spare
    )
    UNION
    SELECT p.level, p.scheduled_time, p.job_id, p.parked_on FROM temp.parked_head p
    UNION
    -- What has expired anybody can end.
    SELECT * FROM (
        SELECT q.priority, q.scheduled_time, q.job_id, q.parked_on FROM ratchet.scheduler_job_queue q
        WHERE q.queue = :queue AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
          AND q.expires_at <= (SELECT c.now FROM clock c) AND q.scheduled_time <= (SELECT c.now FROM clock c)
          AND length(q.job_id) = 16
        ORDER BY q.expires_at, q.job_id LIMIT :lim + :spare
    )
) h
WHERE EXISTS (
    SELECT 1 FROM ratchet.scheduler_node n WHERE n.node_id = :owner AND NOT n.reaped AND n.lease_until > c.now
)
  AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_queue_pause p WHERE p.queue = :queue)
ORDER BY
    h.level + CASE WHEN :boost_ms > 0 THEN (c.now - h.scheduled_time) / :boost_ms ELSE 0 END DESC,
    h.scheduled_time,
    h.job_id
LIMIT :lim + :spare;

-- What the fresh ones need of that which jobs are parked on: first of all somebody who knows them.
UPDATE temp.chosen AS c
SET parked_on = coalesce(
        (
            SELECT w.parked_on FROM temp.wanted_parking w
            WHERE w.parked_on = 'method:' || j.target || '.' || j.method AND w.free = 0
        ),
        (
            SELECT w.parked_on FROM temp.wanted_parking w
            WHERE w.parked_on = 'resource:' || j.resource_name AND w.free < :lim + :spare
        )
    )
FROM ratchet.scheduler_job j
WHERE :park AND c.is_fresh AND j.job_id = c.job_id
  AND EXISTS (SELECT 1 FROM temp.wanted_parking w WHERE w.free < :lim + :spare);

-- Those for which there is too little of it.
UPDATE temp.chosen AS c
SET lacks = 1
FROM (
    SELECT n.place, row_number() OVER (PARTITION BY n.parked_on ORDER BY n.place) > w.free AS lacks
    FROM temp.chosen n
    CROSS JOIN temp.wanted_parking w ON w.parked_on = n.parked_on
) n
WHERE c.place = n.place AND c.is_fresh AND n.lacks;

-- Nobody looks further than the last that is taken.
DELETE FROM temp.chosen
WHERE place > (SELECT c.place FROM temp.chosen c WHERE NOT c.lacks ORDER BY c.place LIMIT 1 OFFSET :lim - 1);

-- As if they had been claimed and parked.
UPDATE ratchet.scheduler_job_queue AS q
SET parked_on = c.parked_on, version = min(q.version, 9223372036854775805) + 2, updated_at = c.now
FROM temp.chosen c
WHERE q.job_id = c.job_id AND c.lacks;

UPDATE ratchet.scheduler_job_queue AS q
SET status = 'RUNNING', picked_by = :owner, picked_at = c.now, version = min(q.version, 9223372036854775806) + 1,
    parked_on = NULL, updated_at = c.now
FROM temp.chosen c
WHERE q.job_id = c.job_id AND NOT c.lacks;

SELECT
    'job_id version queue job_type priority scheduled_time picked_at attempts crash_count max_retries timeout_ms
     business_key edge_count cancel_requested expired parked_on missed' AS names,
    json_group_array(json_array(
        hex(q.job_id), q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at, q.attempts,
        q.crash_count, q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
        coalesce(q.expires_at <= c.now, 0), CASE WHEN NOT c.is_fresh THEN c.parked_on END
    )) AS rows
FROM temp.chosen c CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = c.job_id
WHERE NOT c.lacks
UNION ALL
-- How many could not be taken, for they lack something, and whether nothing was parked at all.
SELECT
    'missed none_parked',
    json_array(json_array(
        min(:lim, count(*)) - count(*) FILTER (WHERE NOT c.lacks), NOT EXISTS (SELECT 1 FROM temp.wanted_parking)
    ))
FROM temp.chosen c
