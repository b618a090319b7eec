-- Records successes as commit/settle.sql does, for a call that has nothing else: jobs with edges or a batch, and those
-- whose cancel was requested, are left alone.
DELETE FROM temp.outcome;

-- `max` and `min` of a null are null, so a body that never started has no times.
INSERT INTO temp.outcome (
    place, job_id, fence, attempts, crash_count, started_at, ran_ms, result, business_key, scheduled_time, picked_at,
    blocked_by, open_parents, progress, now
)
SELECT
    g.key, q.job_id, q.version, q.attempts, q.crash_count, max(c.now - (g.value ->> 2), 0), g.value ->> 3,
    g.value ->> 4, q.business_key, q.scheduled_time, q.picked_at, q.blocked_by, q.open_parents, q.progress, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN jsonb_each(:[job_ids, fences, started_ago, ran_for, results]) g
CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = unhex(g.value ->> 0)
WHERE q.version = g.value ->> 1 AND q.picked_by = :owner
  AND NOT q.cancel_requested AND q.edge_count = 0 AND q.batch_id IS NULL;

-- A fence that was set back by hand may meet a row of its own job.
INSERT OR REPLACE INTO ratchet.scheduler_job_execution (
    job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms
)
SELECT
    o.job_id, o.fence, :owner, 'SUCCEEDED', o.attempts, o.started_at, o.now,
    min(o.started_at + o.ran_ms, o.now) - o.started_at
FROM temp.outcome o;

DELETE FROM ratchet.scheduler_job_queue WHERE job_id IN (SELECT o.job_id FROM temp.outcome o);

UPDATE ratchet.scheduler_job AS j
SET terminal_status = 'SUCCEEDED',
    terminated_at = o.now,
    version = min(o.fence, 9223372036854775806) + 1,
    terminal_error = NULL,
    error_fingerprint = NULL,
    cancel_reason = NULL,
    total_attempts = o.attempts,
    crash_count = o.crash_count,
    blocked_by = o.blocked_by,
    open_parents = o.open_parents,
    edge_count = 0,
    scheduled_time = o.scheduled_time,
    execution_start_time = o.started_at,
    execution_end_time = min(o.started_at + o.ran_ms, o.now),
    queue_wait_ms = max(max(o.picked_at, 0) - max(o.scheduled_time, 0), 0),
    job_result = o.result,
    progress = o.progress
FROM temp.outcome o
WHERE j.job_id = o.job_id;

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE (business_key, owner_job_id) IN (
    SELECT o.business_key, o.job_id FROM temp.outcome o WHERE o.business_key IS NOT NULL
);

DELETE FROM ratchet.scheduler_resource_permit WHERE job_id IN (SELECT o.job_id FROM temp.outcome o);

SELECT json_group_array(hex(o.job_id)) AS job_ids FROM temp.outcome o
