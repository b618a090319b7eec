WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
live AS (
    SELECT
        q.queue, q.priority, q.scheduled_time, q.status,
        q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NULL AND q.scheduled_time <= c.now AS ready,
        q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL AND q.scheduled_time <= c.now AS parked,
        q.status = 'PENDING' AND q.blocked_by = 0 AND q.scheduled_time > c.now AS scheduled,
        q.status = 'PENDING' AND q.blocked_by > 0 AS blocked
    FROM ratchet.scheduler_job_queue q CROSS JOIN clock c
),
counted AS (
    SELECT
        l.queue,
        count(*) FILTER (WHERE l.ready) AS ready,
        count(*) FILTER (WHERE l.parked) AS parked,
        count(*) FILTER (WHERE l.scheduled) AS scheduled,
        count(*) FILTER (WHERE l.blocked) AS blocked,
        count(*) FILTER (WHERE l.status = 'RUNNING') AS running,
        count(*) FILTER (WHERE l.status = 'PAUSED') AS set_aside,
        min(l.scheduled_time) FILTER (WHERE l.ready) AS oldest,
        ARRAY[
            count(*) FILTER (WHERE l.ready AND l.priority = 0), count(*) FILTER (WHERE l.ready AND l.priority = 1),
            count(*) FILTER (WHERE l.ready AND l.priority = 2), count(*) FILTER (WHERE l.ready AND l.priority = 3),
            count(*) FILTER (WHERE l.ready AND l.priority = 4)
        ] AS by_priority
    FROM live l
    GROUP BY l.queue
),
ended AS (
    SELECT j.queue, count(*) FILTER (WHERE j.terminal_status = 'FAILED') AS failed
    FROM ratchet.scheduler_job j
    WHERE j.terminal_status IS NOT NULL AND j.cron_expr IS NULL
    GROUP BY j.queue
),
names AS (
    SELECT queue FROM counted UNION SELECT queue FROM ended UNION SELECT queue FROM ratchet.scheduler_queue_pause
)
SELECT
    n.queue,
    EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = n.queue) AS paused,
    coalesce(k.ready, 0) AS ready, coalesce(k.parked, 0) AS parked, coalesce(k.scheduled, 0) AS scheduled, coalesce(k.blocked, 0) AS blocked,
    coalesce(k.running, 0) AS running, coalesce(k.set_aside, 0) AS set_aside, coalesce(e.failed, 0) AS failed,
    -- A damaged time may be infinite; greatest() passes over NULL.
    CASE WHEN k.oldest IS NOT NULL
        THEN (extract(epoch FROM c.now - greatest(k.oldest, '0001-01-01 00:00+00')) * 1000)::bigint
    END AS oldest_wait_ms,
    coalesce(k.by_priority, ARRAY[0, 0, 0, 0, 0]::bigint[]) AS by_priority
FROM names n
CROSS JOIN clock c
LEFT JOIN counted k ON k.queue = n.queue
LEFT JOIN ended e ON e.queue = n.queue
ORDER BY n.queue
