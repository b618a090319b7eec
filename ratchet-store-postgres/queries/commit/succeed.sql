-- Records successes as commit/settle.sql does, for a call that has nothing else: jobs with edges, open parents or a batch,
-- and those whose cancel was requested, are left alone. The ids come in order, so that two calls wait for each other in one
-- direction only. The condition on the fence: see commit/settle.sql.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))::timestamptz(3) AS now
),
ended AS (
    DELETE FROM ratchet.scheduler_job_queue q
    USING (
        SELECT
            unnest(:job_ids::uuid[]) AS job_id, unnest(:fences::bigint[]) AS fence,
            unnest(:started_ago::bigint[]) AS started_ago_ms, unnest(:ran_for::bigint[]) AS ran_ms,
            unnest(:results::text[]) AS result
    ) g
    -- `greatest` passes over nulls, so a body that never started is told apart first.
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN g.started_ago_ms IS NOT NULL
            THEN greatest(
                (SELECT c.now FROM clock c) - g.started_ago_ms * interval '1 millisecond', '1970-01-01 00:00:00+00'
            )
        END AS started_at
    ) s
    WHERE q.job_id = ANY(ARRAY[g.job_id]) AND q.version = g.fence AND q.picked_by = :owner::text AND g.fence + 0 = g.fence
      AND NOT q.cancel_requested AND q.edge_count = 0 AND q.blocked_by = 0 AND q.open_parents = 0 AND q.batch_id IS NULL
    RETURNING
        q.job_id, q.version, q.attempts, q.crash_count, q.scheduled_time, q.picked_at, q.business_key, q.progress,
        g.result, g.ran_ms, s.started_at
),
history AS (
    INSERT INTO ratchet.scheduler_job_execution (
        job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms
    )
    SELECT
        e.job_id, e.version, :owner::text, 'SUCCEEDED', e.attempts, e.started_at, (SELECT c.now FROM clock c), e.ran_ms
    FROM ended e
),
cold AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = 'SUCCEEDED',
        terminated_at = (SELECT c.now FROM clock c),
        version = least(e.version, 9223372036854775806) + 1,
        terminal_error = NULL,
        error_fingerprint = NULL,
        cancel_reason = NULL,
        total_attempts = e.attempts,
        crash_count = e.crash_count,
        blocked_by = 0,
        open_parents = 0,
        edge_count = 0,
        scheduled_time = e.scheduled_time,
        execution_start_time = e.started_at,
        execution_end_time = e.started_at + e.ran_ms * interval '1 millisecond',
        queue_wait_ms = CASE
            WHEN isfinite(e.scheduled_time) AND isfinite(e.picked_at)
            THEN greatest((date_part('epoch', e.picked_at - e.scheduled_time) * 1000)::bigint, 0)
        END,
        job_result = e.result::json,
        progress = e.progress
    FROM ended e
    WHERE j.job_id = ANY(ARRAY[e.job_id])
),
-- Where nobody uses keys or permits, none is looked for.
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation k USING ended e
    WHERE k.business_key = e.business_key AND k.owner_job_id = e.job_id
      AND EXISTS (SELECT FROM ratchet.scheduler_business_key_reservation)
),
permits AS (
    DELETE FROM ratchet.scheduler_resource_permit p USING ended e
    WHERE p.job_id = ANY(ARRAY[e.job_id]) AND EXISTS (SELECT FROM ratchet.scheduler_resource_permit)
)
-- Null if all of them were recorded.
SELECT CASE
    WHEN (SELECT count(*) FROM ended) < cardinality(:job_ids::uuid[]) THEN ARRAY(SELECT e.job_id FROM ended e)
END AS job_ids
