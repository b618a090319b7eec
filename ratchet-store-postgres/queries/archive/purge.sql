WITH old AS MATERIALIZED (
    SELECT a.original_job_id
    FROM ratchet.scheduler_job_archive a
    WHERE a.archived_at < coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
        - :retention_ms::bigint * interval '1 millisecond'
    ORDER BY a.archived_at, a.original_job_id
    LIMIT :lim::bigint
    FOR UPDATE SKIP LOCKED
)
DELETE FROM ratchet.scheduler_job_archive a USING old o WHERE a.original_job_id = o.original_job_id
