-- Renews a lease and tells the node what it should know, by one statement.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
renewed AS (
    UPDATE ratchet.scheduler_node n
    SET heartbeat_ts = c.now,
        -- All of these are the values from before.
        beating_since = CASE
            WHEN n.heartbeat_ts BETWEEN c.now - :gap_ms::bigint * interval '1 millisecond' AND c.now
                AND n.beat_gap_ms <= :gap_ms::bigint THEN n.beating_since
            ELSE c.now
        END,
        beat_gap_ms = :gap_ms::bigint,
        lease_until = least(c.now + :lease_ms::bigint * interval '1 millisecond', '9998-12-31 23:59:59.999+00'),
        skew_ms = :node_time_ms::bigint - (extract(epoch FROM c.now) * 1000)::bigint,
        running = :running::bigint,
        slots = :slots::bigint,
        draining = :draining::boolean
    FROM clock c
    WHERE n.node_id = :owner::text AND NOT n.reaped
    RETURNING n.node_id
),
-- The names of the queues and of the owners at work, each found by one step along an index.
queues AS (
    (
        SELECT q.queue FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NULL
        ORDER BY q.queue LIMIT 1
    )
    UNION ALL
    SELECT n.queue
    FROM queues k
    CROSS JOIN LATERAL (
        SELECT q.queue FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NULL AND q.queue > k.queue
        ORDER BY q.queue LIMIT 1
    ) n
),
-- What is parked where.
parkings AS (
    (
        SELECT q.queue, q.parked_on FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
        ORDER BY q.queue, q.parked_on LIMIT 1
    )
    UNION ALL
    SELECT n.queue, n.parked_on
    FROM parkings k
    CROSS JOIN LATERAL (
        SELECT q.queue, q.parked_on FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
          AND (q.queue, q.parked_on) > (k.queue, k.parked_on)
        ORDER BY q.queue, q.parked_on LIMIT 1
    ) n
),
owners AS (
    (
        SELECT q.picked_by FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'RUNNING' ORDER BY q.picked_by LIMIT 1
    )
    UNION ALL
    SELECT n.picked_by
    FROM owners o
    CROSS JOIN LATERAL (
        SELECT q.picked_by FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'RUNNING' AND q.picked_by > o.picked_by
        ORDER BY q.picked_by LIMIT 1
    ) n
),
heads AS MATERIALIZED (
    SELECT k.queue, level
    FROM queues k CROSS JOIN generate_series(0, 4) AS level
    WHERE NOT EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = k.queue)
)
SELECT
    c.now,
    EXISTS (SELECT FROM renewed) AS accepted,
    ARRAY(
        SELECT o.picked_by::text
        FROM owners o LEFT JOIN ratchet.scheduler_node n ON n.node_id = o.picked_by
        WHERE o.picked_by <> :owner::text AND (n.node_id IS NULL OR n.reaped OR n.lease_until <= c.now)
    ) AS dead,
    ARRAY(
        SELECT q.job_id FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'RUNNING' AND q.picked_by = :owner::text AND q.cancel_requested
        ORDER BY q.job_id
    ) AS cancel_requested,
    EXISTS (SELECT FROM owners o WHERE o.picked_by = :owner::text) AS holds_jobs,
    EXISTS (
        SELECT FROM heads h
        CROSS JOIN LATERAL (
            SELECT FROM ratchet.scheduler_job_queue q
            WHERE q.queue = h.queue AND q.priority = h.level AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= c.now
            LIMIT 1
        ) d
    ) OR EXISTS (
        SELECT FROM parkings k
        CROSS JOIN ratchet.scheduler_node n
        WHERE n.node_id = :owner::text
          AND NOT EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = k.queue)
          AND EXISTS (
            SELECT FROM ratchet.scheduler_job_queue q
            WHERE q.queue = k.queue AND q.parked_on = k.parked_on AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= c.now
              AND (
                q.expires_at <= c.now
                OR starts_with(k.parked_on, 'method:') AND substr(k.parked_on, 8) = ANY(n.methods)
                OR NOT starts_with(k.parked_on, 'method:') AND NOT starts_with(k.parked_on, 'resource:')
                    AND NOT starts_with(k.parked_on, 'suspect:')
                OR EXISTS (
                    SELECT FROM ratchet.scheduler_resource_limit l
                    WHERE starts_with(k.parked_on, 'resource:') AND l.resource_name = substr(k.parked_on, 10)
                      AND l.max_concurrent <= 4294967295 AND l.retry_delay_ms >= 0
                      AND l.max_concurrent > (
                        SELECT count(*) FROM ratchet.scheduler_resource_permit p WHERE p.resource_name = l.resource_name
                      )
                )
              )
          )
    ) AS due_work,
    EXISTS (
        SELECT FROM parkings k
        WHERE starts_with(k.parked_on, 'suspect:')
          AND NOT EXISTS (SELECT FROM ratchet.scheduler_queue_pause p WHERE p.queue = k.queue)
          AND EXISTS (
            SELECT FROM ratchet.scheduler_job_queue q
            WHERE q.queue = k.queue AND q.parked_on = k.parked_on AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= c.now
          )
    ) AS suspects,
    (
        SELECT min(d.scheduled_time)
        FROM heads h
        CROSS JOIN LATERAL (
            SELECT q.scheduled_time FROM ratchet.scheduler_job_queue q
            WHERE q.queue = h.queue AND q.priority = h.level AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time > c.now
            ORDER BY q.scheduled_time LIMIT 1
        ) d
    ) AS next_due,
    (SELECT min(j.next_fire) FROM ratchet.scheduler_job j WHERE j.rec_status = 'A') AS next_fire
FROM clock c
