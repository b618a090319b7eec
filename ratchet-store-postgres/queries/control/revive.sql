-- Gives ended jobs a queue row again, with the fence going on from the last one.
WITH revived AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = NULL,
        cancel_cascaded = false,
        cancel_reason = CASE WHEN :paused::boolean THEN j.cancel_reason END
    WHERE j.job_id = ANY(:job_ids::uuid[])
    RETURNING j.*
)
INSERT INTO ratchet.scheduler_job_queue (
    job_id, status, job_type, queue, priority, scheduled_time, business_key, timeout_ms, max_retries, expires_at,
    batch_id, attempts, crash_count, blocked_by, open_parents, edge_count, paused_from_status, last_error, progress,
    version, updated_at
)
SELECT
    r.job_id, CASE WHEN :paused::boolean THEN 'PAUSED' ELSE 'PENDING' END, r.job_type, r.queue, r.priority,
    r.scheduled_time, r.business_key, r.timeout_ms, r.max_retries, r.expires_at, r.batch_id, r.total_attempts,
    r.crash_count, r.blocked_by, r.open_parents, r.edge_count, CASE WHEN :paused::boolean THEN 'FAILED' END,
    r.terminal_error, r.progress, least(r.version, 9223372036854775806) + 1, :now::timestamptz
FROM revived r
ORDER BY r.job_id
