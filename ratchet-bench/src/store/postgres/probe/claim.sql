UPDATE probe_hot
SET status = 'RUNNING', picked_by = $1, picked_at = now(), version = version + 1, updated_at = now()
WHERE job_id = ANY(ARRAY(
    SELECT h.job_id
    FROM probe_hot h
    WHERE h.queue = 'default' AND h.status = 'PENDING' AND h.blocked_by = 0 AND h.scheduled_time <= now()
    ORDER BY h.priority DESC, h.scheduled_time, h.job_id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
RETURNING
    job_id, version, queue, job_type, priority, scheduled_time, picked_at, attempts, crash_count, max_retries, edge_count,
    cancel_requested
