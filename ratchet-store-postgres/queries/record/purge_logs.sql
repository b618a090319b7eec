WITH old AS MATERIALIZED (
    SELECT l.log_id
    FROM ratchet.scheduler_job_log l
    WHERE l.ts < coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
        - :retention_ms::bigint * interval '1 millisecond'
    ORDER BY l.ts, l.log_id
    LIMIT :lim::bigint
    FOR UPDATE SKIP LOCKED
)
DELETE FROM ratchet.scheduler_job_log l USING old o WHERE l.log_id = o.log_id
