-- Records outcomes: history, both rows, key and permit. Only for the present owner and fence.
--
-- With `everything` false this is the whole of a plain outcome, and it leaves alone what needs more: jobs with edges or
-- a batch, and those whose cancel was requested. With `everything` true the caller does the rest.
DELETE FROM temp.outcome;

-- `max` and `min` of a null are null, so a body that never started has no times, and a job that keeps its due time no delay.
INSERT INTO temp.outcome (
    place, job_id, fence, ended_as, next_due, attempts, crash_count, history, started_at, ran_ms, result, last_error,
    cancel_reason, business_key, scheduled_time, picked_at, blocked_by, open_parents, edge_count, progress, now
)
SELECT
    g.key, q.job_id, q.version, g.value ->> 2,
    coalesce(min(c.now + (g.value ->> 3), 253370764799999), min(q.scheduled_time, c.now)),
    min(q.attempts, 4294967294) + (g.value ->> 4), min(q.crash_count, 4294967294) + (g.value ->> 5), g.value ->> 6,
    max(c.now - (g.value ->> 7), 0),
    g.value ->> 8, g.value ->> 9, q.last_error, q.cancel_reason, q.business_key, q.scheduled_time, q.picked_at,
    q.blocked_by, q.open_parents, q.edge_count, q.progress, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN jsonb_each(:[
    job_ids, fences, ends, delays, failures, crashes, history, started_ago, ran_for, results
]) g
CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = unhex(g.value ->> 0)
WHERE q.version = g.value ->> 1 AND q.picked_by = :owner
  AND (:everything OR (
      NOT q.cancel_requested AND ((q.edge_count = 0 AND q.batch_id IS NULL) OR g.value ->> 2 IS NULL)
  ));

-- What most outcomes have nothing of is read only where there is something.
UPDATE temp.outcome AS o
SET error = r.value ->> 0, error_class = r.value ->> 1, fingerprint = r.value ->> 2, reason = r.value ->> 3
FROM jsonb_each(:[errors, error_classes, fingerprints, reasons]) r
WHERE o.place = r.key AND r.value <> jsonb('[null,null,null,null]');

-- A fence that was set back by hand may meet a row of its own job.
INSERT OR REPLACE INTO ratchet.scheduler_job_execution (
    job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms, error_class, error_message
)
SELECT
    o.job_id, o.fence, :owner, o.history, o.attempts, o.started_at, o.now,
    min(o.started_at + o.ran_ms, o.now) - o.started_at, o.error_class, o.error
FROM temp.outcome o
WHERE o.history IS NOT NULL;

DELETE FROM ratchet.scheduler_job_queue
WHERE job_id IN (SELECT o.job_id FROM temp.outcome o WHERE o.ended_as IS NOT NULL);

UPDATE ratchet.scheduler_job AS j
SET terminal_status = o.ended_as,
    terminated_at = o.now,
    version = min(o.fence, 9223372036854775806) + 1,
    terminal_error = CASE WHEN o.ended_as = 'SUCCEEDED' THEN NULL ELSE coalesce(o.error, o.last_error) END,
    error_fingerprint = o.fingerprint,
    cancel_reason = coalesce(o.cancel_reason, o.reason),
    total_attempts = o.attempts,
    crash_count = o.crash_count,
    blocked_by = o.blocked_by,
    open_parents = o.open_parents,
    edge_count = o.edge_count,
    scheduled_time = o.scheduled_time,
    execution_start_time = o.started_at,
    execution_end_time = min(o.started_at + o.ran_ms, o.now),
    queue_wait_ms = max(max(o.picked_at, 0) - max(o.scheduled_time, 0), 0),
    job_result = o.result,
    progress = o.progress
FROM temp.outcome o
WHERE j.job_id = o.job_id AND o.ended_as IS NOT NULL;

UPDATE ratchet.scheduler_job_queue AS q
SET status = 'PENDING',
    scheduled_time = o.next_due,
    version = min(o.fence, 9223372036854775806) + 1,
    attempts = o.attempts,
    crash_count = o.crash_count,
    last_error = coalesce(o.error, o.last_error),
    picked_by = NULL,
    picked_at = NULL,
    progress = NULL,
    -- What it is parked on, if it is.
    parked_on = o.reason,
    updated_at = o.now
FROM temp.outcome o
WHERE q.job_id = o.job_id AND o.ended_as IS NULL;

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE (business_key, owner_job_id) IN (
    SELECT o.business_key, o.job_id FROM temp.outcome o WHERE o.business_key IS NOT NULL AND o.ended_as IS NOT NULL
);

DELETE FROM ratchet.scheduler_resource_permit WHERE job_id IN (SELECT o.job_id FROM temp.outcome o);

SELECT
    'job_id next_due' AS names,
    json_group_array(json_array(
        hex(o.job_id), CASE WHEN o.ended_as IS NULL THEN o.next_due END
    )) AS rows
FROM temp.outcome o
