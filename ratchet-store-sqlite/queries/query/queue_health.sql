WITH clock AS MATERIALIZED (
    SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now
),
live AS (
    SELECT
        q.queue, q.priority, q.scheduled_time, q.status,
        q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NULL AND q.scheduled_time <= c.now AS ready,
        q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL AND q.scheduled_time <= c.now AS parked,
        q.status = 'PENDING' AND q.blocked_by = 0 AND q.scheduled_time > c.now AS scheduled,
        q.status = 'PENDING' AND q.blocked_by > 0 AS blocked
    FROM clock c CROSS JOIN ratchet.scheduler_job_queue q
),
counted AS MATERIALIZED (
    SELECT
        l.queue,
        count(*) FILTER (WHERE l.ready) AS ready,
        count(*) FILTER (WHERE l.parked) AS parked,
        count(*) FILTER (WHERE l.scheduled) AS scheduled,
        count(*) FILTER (WHERE l.blocked) AS blocked,
        count(*) FILTER (WHERE l.status = 'RUNNING') AS running,
        count(*) FILTER (WHERE l.status = 'PAUSED') AS set_aside,
        min(l.scheduled_time) FILTER (WHERE l.ready) AS oldest,
        json_array(
            count(*) FILTER (WHERE l.ready AND l.priority = 0), count(*) FILTER (WHERE l.ready AND l.priority = 1),
            count(*) FILTER (WHERE l.ready AND l.priority = 2), count(*) FILTER (WHERE l.ready AND l.priority = 3),
            count(*) FILTER (WHERE l.ready AND l.priority = 4)
        ) AS by_priority
    FROM live l
    GROUP BY l.queue
),
ended AS MATERIALIZED (
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
    EXISTS (SELECT 1 FROM ratchet.scheduler_queue_pause p WHERE p.queue = n.queue) AS paused,
    coalesce(k.ready, 0) AS ready, coalesce(k.parked, 0) AS parked, coalesce(k.scheduled, 0) AS scheduled, coalesce(k.blocked, 0) AS blocked,
    coalesce(k.running, 0) AS running, coalesce(k.set_aside, 0) AS set_aside, coalesce(e.failed, 0) AS failed,
    c.now - k.oldest AS oldest_wait_ms,
    coalesce(k.by_priority, '[0,0,0,0,0]') AS by_priority
FROM clock c
CROSS JOIN names n
LEFT JOIN counted k ON k.queue = n.queue
LEFT JOIN ended e ON e.queue = n.queue
ORDER BY n.queue
