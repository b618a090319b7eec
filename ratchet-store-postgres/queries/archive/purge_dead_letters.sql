-- Removes the oldest dead letters with what hangs on them.
WITH old AS MATERIALIZED (
    SELECT j.job_id
    FROM ratchet.scheduler_job j
    WHERE j.terminal_status = 'FAILED'
      AND j.terminated_at < coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
        - :retention_ms::bigint * interval '1 millisecond'
    ORDER BY j.terminated_at, j.job_id
    LIMIT :lim::bigint
    FOR UPDATE SKIP LOCKED
),
executions AS (DELETE FROM ratchet.scheduler_job_execution x USING old o WHERE x.job_id = o.job_id),
logs AS (DELETE FROM ratchet.scheduler_job_log x USING old o WHERE x.job_id = o.job_id),
edges_from AS (DELETE FROM ratchet.scheduler_job_edge x USING old o WHERE x.parent_id = o.job_id),
edges_to AS (DELETE FROM ratchet.scheduler_job_edge x USING old o WHERE x.child_id = o.job_id),
alerts AS (DELETE FROM ratchet.scheduler_dlq_alert x USING old o WHERE x.job_id = o.job_id)
DELETE FROM ratchet.scheduler_job j USING old o WHERE j.job_id = o.job_id
