-- Ends jobs that wait as CANCELED and frees their keys.
DELETE FROM temp.gone_job;

INSERT INTO temp.gone_job (
    job_id, batch_id, business_key, paused_from_status, version, cancel_reason, last_error, attempts, crash_count,
    blocked_by, open_parents, edge_count, scheduled_time, progress
)
SELECT
    q.job_id, q.batch_id, q.business_key, q.paused_from_status, q.version, q.cancel_reason, q.last_error, q.attempts,
    q.crash_count, q.blocked_by, q.open_parents, q.edge_count, q.scheduled_time, q.progress
FROM ratchet.scheduler_job_queue q
WHERE q.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g) AND q.status <> 'RUNNING';

DELETE FROM ratchet.scheduler_job_queue WHERE job_id IN (SELECT g.job_id FROM temp.gone_job g);

UPDATE ratchet.scheduler_job AS j
SET terminal_status = 'CANCELED',
    terminated_at = :now,
    version = min(g.version, 9223372036854775806) + 1,
    cancel_reason = coalesce(:reason, g.cancel_reason),
    cancel_cascaded = :cascaded,
    superseded_by = coalesce(:superseded_by, j.superseded_by),
    terminal_error = g.last_error,
    total_attempts = g.attempts,
    crash_count = g.crash_count,
    blocked_by = g.blocked_by,
    open_parents = g.open_parents,
    edge_count = g.edge_count,
    scheduled_time = g.scheduled_time,
    execution_start_time = NULL,
    execution_end_time = NULL,
    queue_wait_ms = NULL,
    job_result = NULL,
    progress = g.progress
FROM temp.gone_job g
WHERE j.job_id = g.job_id;

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE (business_key, owner_job_id) IN (
    SELECT g.business_key, g.job_id FROM temp.gone_job g WHERE g.business_key IS NOT NULL
);

SELECT g.job_id, g.batch_id, g.paused_from_status FROM temp.gone_job g
