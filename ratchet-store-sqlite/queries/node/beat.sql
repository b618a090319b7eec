-- Renews a lease and tells the node what it should know.
UPDATE ratchet.scheduler_node
SET heartbeat_ts = c.now,
    -- All of these are the values from before.
    beating_since = CASE
        WHEN c.now - heartbeat_ts BETWEEN 0 AND :gap_ms AND beat_gap_ms <= :gap_ms THEN beating_since
        ELSE c.now
    END,
    beat_gap_ms = :gap_ms,
    lease_until = min(c.now + :lease_ms, 253370764799999),
    skew_ms = :node_time_ms - c.now,
    running = :running,
    slots = :slots,
    draining = :draining
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
WHERE node_id = :owner AND NOT reaped;

-- The names of the queues and of the owners at work, each found by one step along an index.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now
),
queues AS (
    SELECT min(q.queue) AS queue
    FROM ratchet.scheduler_job_queue q
    WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NULL
    UNION ALL
    SELECT (
        SELECT min(q.queue)
        FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NULL AND q.queue > k.queue
    )
    FROM queues k
    WHERE k.queue IS NOT NULL
),
-- Queues in which something is parked, and what it is parked on.
parked_queues AS (
    SELECT min(q.queue) AS queue
    FROM ratchet.scheduler_job_queue q
    WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(q.queue)
        FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL AND q.queue > k.queue
    )
    FROM parked_queues k
    WHERE k.queue IS NOT NULL
),
parkings AS (
    SELECT
        k.queue,
        (
            SELECT min(q.parked_on) FROM ratchet.scheduler_job_queue q
            WHERE q.queue = k.queue AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
        ) AS parked_on
    FROM parked_queues k
    WHERE k.queue IS NOT NULL
    UNION ALL
    SELECT
        k.queue,
        (
            SELECT min(q.parked_on) FROM ratchet.scheduler_job_queue q
            WHERE q.queue = k.queue AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on > k.parked_on
        )
    FROM parkings k
    WHERE k.parked_on IS NOT NULL
),
owners AS (
    SELECT min(q.picked_by) AS picked_by FROM ratchet.scheduler_job_queue q WHERE q.status = 'RUNNING'
    UNION ALL
    SELECT (
        SELECT min(q.picked_by) FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'RUNNING' AND q.picked_by > o.picked_by
    )
    FROM owners o
    WHERE o.picked_by IS NOT NULL
),
heads AS MATERIALIZED (
    SELECT k.queue, l.value AS level
    FROM queues k CROSS JOIN json_each('[0,1,2,3,4]') l
    WHERE k.queue IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_queue_pause p WHERE p.queue = k.queue)
)
SELECT
    c.now,
    EXISTS (
        SELECT 1 FROM ratchet.scheduler_node n WHERE n.node_id = :owner AND NOT n.reaped
    ) AS accepted,
    (
        SELECT json_group_array(o.picked_by)
        FROM owners o LEFT JOIN ratchet.scheduler_node n ON n.node_id = o.picked_by
        WHERE o.picked_by <> :owner AND (n.node_id IS NULL OR n.reaped OR n.lease_until <= c.now)
    ) AS dead,
    (
        SELECT json_group_array(lower(hex(q.job_id)) ORDER BY q.job_id) FROM ratchet.scheduler_job_queue q
        WHERE q.status = 'RUNNING' AND q.picked_by = :owner AND q.cancel_requested
    ) AS cancel_requested,
    EXISTS (SELECT 1 FROM owners o WHERE o.picked_by = :owner) AS holds_jobs,
    EXISTS (
        SELECT 1 FROM heads h
        WHERE EXISTS (
            SELECT 1 FROM ratchet.scheduler_job_queue q
            WHERE q.queue = h.queue AND q.priority = h.level AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= c.now AND length(q.job_id) = 16
        )
    ) OR EXISTS (
        SELECT 1
        FROM ratchet.scheduler_node n
        CROSS JOIN parkings k
        WHERE n.node_id = :owner AND k.parked_on IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_queue_pause p WHERE p.queue = k.queue)
          AND EXISTS (
            SELECT 1 FROM ratchet.scheduler_job_queue q
            WHERE q.queue = k.queue AND q.parked_on = k.parked_on AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= c.now AND length(q.job_id) = 16
              AND (
                q.expires_at <= c.now
                OR (
                    substr(k.parked_on, 1, 7) = 'method:'
                    AND EXISTS (SELECT 1 FROM json_each(n.methods) m WHERE m.value = substr(k.parked_on, 8))
                )
                OR (
                    substr(k.parked_on, 1, 7) <> 'method:' AND substr(k.parked_on, 1, 9) <> 'resource:'
                    AND substr(k.parked_on, 1, 8) <> 'suspect:'
                )
                OR EXISTS (
                    SELECT 1 FROM ratchet.scheduler_resource_limit l
                    WHERE substr(k.parked_on, 1, 9) = 'resource:' AND l.resource_name = substr(k.parked_on, 10)
                      AND l.max_concurrent <= 4294967295 AND l.retry_delay_ms >= 0
                      AND l.max_concurrent > (
                        SELECT count(*) FROM ratchet.scheduler_resource_permit p WHERE p.resource_name = l.resource_name
                      )
                )
              )
          )
    ) AS due_work,
    EXISTS (
        SELECT 1
        FROM parkings k
        WHERE substr(k.parked_on, 1, 8) = 'suspect:'
          AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_queue_pause p WHERE p.queue = k.queue)
          AND EXISTS (
            SELECT 1 FROM ratchet.scheduler_job_queue q
            WHERE q.queue = k.queue AND q.parked_on = k.parked_on AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= c.now AND length(q.job_id) = 16
          )
    ) AS suspects,
    (
        SELECT min((
            SELECT min(q.scheduled_time) FROM ratchet.scheduler_job_queue q
            WHERE q.queue = h.queue AND q.priority = h.level AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time > c.now AND length(q.job_id) = 16
        ))
        FROM heads h
    ) AS next_due,
    (SELECT min(j.next_fire) FROM ratchet.scheduler_job j WHERE j.rec_status = 'A') AS next_fire
FROM clock c
