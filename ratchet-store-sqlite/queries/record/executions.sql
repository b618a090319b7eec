SELECT
    e.job_id, e.fence, e.node_id, e.status, e.attempt, e.started_at, e.recorded_at, e.duration_ms, e.error_class,
    e.error_message
FROM ratchet.scheduler_job_execution e
WHERE e.job_id = :job_id
ORDER BY e.fence
