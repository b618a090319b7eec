DELETE FROM ratchet.scheduler_job_log
WHERE log_id IN (
    SELECT l.log_id
    FROM ratchet.scheduler_job_log l
    WHERE l.ts < coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) - :retention_ms
    ORDER BY l.ts, l.log_id
    LIMIT :lim
)
