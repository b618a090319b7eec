DELETE FROM ratchet.scheduler_job_archive
WHERE original_job_id IN (
    SELECT a.original_job_id
    FROM ratchet.scheduler_job_archive a
    WHERE a.archived_at < coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) - :retention_ms
    ORDER BY a.archived_at, a.original_job_id
    LIMIT :lim
)
