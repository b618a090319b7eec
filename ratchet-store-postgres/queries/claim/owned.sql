SELECT
    q.job_id, q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at, q.attempts, q.crash_count,
    q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
    coalesce(
        q.expires_at <= coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())), false
    ) AS expired
FROM ratchet.scheduler_job_queue q
WHERE q.picked_by = :owner::text AND q.status = 'RUNNING'
ORDER BY q.job_id
