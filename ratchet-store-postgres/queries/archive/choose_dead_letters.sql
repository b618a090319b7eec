-- Locks old dead letters, in the order of the primary key as archive/choose_old.sql.
SELECT j.job_id
FROM ratchet.scheduler_job j
WHERE j.terminal_status = 'FAILED'
  AND j.terminated_at < coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
    - :retention_ms::bigint * interval '1 millisecond'
ORDER BY j.job_id
LIMIT :lim::bigint
FOR UPDATE SKIP LOCKED
