-- Takes the best due jobs of some queues. docs/stores/sqlite.md explains each step; the heads of the queues are read by
-- the trigger in connect/choose_best.sql. There is one writer, so nobody else can hold a job, and none is missed. A queue
-- with parked jobs is left to pull.sql.
DELETE FROM temp.wanted_queue;

DELETE FROM temp.chosen;

INSERT INTO temp.wanted_queue (queue, lim, boost_ms, now)
SELECT w.value ->> 0, w.value ->> 1, :boost_ms, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN jsonb_each(:[queues, limits]) w
WHERE EXISTS (
    SELECT 1 FROM ratchet.scheduler_node n WHERE n.node_id = :owner AND NOT n.reaped AND n.lease_until > c.now
)
  AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_queue_pause p WHERE p.queue = w.value ->> 0)
  AND NOT EXISTS (
    SELECT 1 FROM ratchet.scheduler_job_queue q
    WHERE q.queue = w.value ->> 0 AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
  )
ORDER BY w.key;

UPDATE ratchet.scheduler_job_queue AS q
SET status = 'RUNNING', picked_by = :owner, picked_at = c.now, version = min(q.version, 9223372036854775806) + 1,
    updated_at = c.now
FROM temp.chosen c
WHERE q.job_id = c.job_id;

SELECT
    'job_id version queue job_type priority scheduled_time picked_at attempts crash_count max_retries timeout_ms
     business_key edge_count cancel_requested expired missed' AS names,
    json_group_array(json_array(
        hex(q.job_id), q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at, q.attempts,
        q.crash_count, q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
        coalesce(q.expires_at <= c.now, 0)
    )) AS rows
FROM temp.chosen c CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = c.job_id
UNION ALL
SELECT
    'missed parked',
    json_array(json_array(0, nullif(json_group_array(w.key + 1) || '', '[]')))
FROM jsonb_each(:[queues, limits]) w
WHERE EXISTS (
    SELECT 1 FROM ratchet.scheduler_job_queue q
    WHERE q.queue = w.value ->> 0 AND q.status = 'PENDING' AND q.blocked_by = 0 AND q.parked_on IS NOT NULL
)
