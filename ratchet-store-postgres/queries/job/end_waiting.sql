-- Ends jobs that wait as CANCELED and frees their keys. Their queue rows are held.
WITH gone AS (
    DELETE FROM ratchet.scheduler_job_queue q
    WHERE q.job_id = ANY(:job_ids::uuid[]) AND q.status <> 'RUNNING'
    RETURNING q.*
),
cold AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = 'CANCELED',
        terminated_at = :now::timestamptz,
        version = least(g.version, 9223372036854775806) + 1,
        cancel_reason = coalesce(:reason::text, g.cancel_reason),
        cancel_cascaded = :cascaded::boolean,
        superseded_by = coalesce(:superseded_by::uuid, j.superseded_by),
        terminal_error = g.last_error,
        total_attempts = g.attempts,
        crash_count = g.crash_count,
        blocked_by = g.blocked_by,
        open_parents = g.open_parents,
        edge_count = g.edge_count,
        scheduled_time = g.scheduled_time,
        execution_start_time = NULL,
        execution_end_time = NULL,
        queue_wait_ms = NULL,
        job_result = NULL,
        progress = g.progress
    FROM gone g
    WHERE j.job_id = ANY(ARRAY[g.job_id])
),
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation r USING gone g
    WHERE r.business_key = g.business_key AND r.owner_job_id = g.job_id
)
SELECT g.job_id, g.batch_id, g.paused_from_status FROM gone g
