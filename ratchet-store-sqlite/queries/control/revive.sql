-- Gives ended jobs a queue row again, with the fence going on from the last one.
UPDATE ratchet.scheduler_job
SET terminal_status = NULL, cancel_cascaded = 0, cancel_reason = CASE WHEN :paused THEN cancel_reason END
WHERE job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g);

INSERT INTO ratchet.scheduler_job_queue (
    job_id, status, job_type, queue, priority, scheduled_time, business_key, timeout_ms, max_retries, expires_at,
    batch_id, attempts, crash_count, blocked_by, open_parents, edge_count, paused_from_status, last_error, progress,
    version, updated_at
)
SELECT
    j.job_id, CASE WHEN :paused THEN 'PAUSED' ELSE 'PENDING' END, j.job_type, j.queue, j.priority,
    j.scheduled_time, j.business_key, j.timeout_ms, j.max_retries, j.expires_at, j.batch_id, j.total_attempts,
    j.crash_count, j.blocked_by, j.open_parents, j.edge_count, CASE WHEN :paused THEN 'FAILED' END,
    j.terminal_error, j.progress, min(j.version, 9223372036854775806) + 1, :now
FROM ratchet.scheduler_job j
WHERE j.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g)
ORDER BY j.job_id
