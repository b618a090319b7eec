-- Ends jobs as FAILED that have neither a queue row nor an end, and schedules; frees their keys and permits.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
ended AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = 'FAILED', rec_status = NULL, terminal_error = :error::text,
        error_fingerprint = :fingerprint::text, version = least(j.version, 9223372036854775806) + 1,
        scheduled_time = coalesce(j.scheduled_time, j.created_at), terminated_at = c.now
    FROM clock c
    WHERE j.job_id = ANY(:job_ids::uuid[]) AND j.terminal_status IS NULL
      AND NOT EXISTS (SELECT FROM ratchet.scheduler_job_queue q WHERE q.job_id = j.job_id)
    RETURNING j.job_id, j.batch_id
),
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation r USING ended e WHERE r.owner_job_id = e.job_id
),
permits AS (
    DELETE FROM ratchet.scheduler_resource_permit p USING ended e WHERE p.job_id = ANY(ARRAY[e.job_id])
)
SELECT e.job_id, e.batch_id FROM ended e
