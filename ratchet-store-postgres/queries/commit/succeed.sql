-- Records successes as commit/settle.sql does, for a call that has nothing else: jobs with edges or a batch, and those
-- whose cancel was requested, are left alone. The ids come in order, so that two calls wait for each other in one
-- direction only. The condition on the fence: see commit/settle.sql.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
ended AS (
    DELETE FROM ratchet.scheduler_job_queue q
    USING unnest(
        :job_ids::uuid[], :fences::bigint[], :started_ago::bigint[], :ran_for::bigint[], :results::text[]
    ) AS g (job_id, fence, started_ago_ms, ran_ms, result)
    WHERE q.job_id = g.job_id AND q.version = g.fence AND q.picked_by = :owner::text AND g.fence + 0 = g.fence
      AND NOT q.cancel_requested AND q.edge_count = 0 AND q.batch_id IS NULL
    RETURNING
        q.job_id, q.version, q.attempts, q.crash_count, q.blocked_by, q.open_parents, q.scheduled_time, q.picked_at,
        q.business_key, q.progress, g.started_ago_ms, g.ran_ms, g.result
),
recorded AS MATERIALIZED (
    SELECT
        e.*, c.now, s.started_at,
        CASE
            WHEN s.started_at IS NOT NULL THEN least(s.started_at + e.ran_ms * interval '1 millisecond', c.now)
        END AS ended_at
    FROM ended e
    CROSS JOIN clock c
    -- `greatest` and `least` pass over nulls, so a body that never started is told apart first.
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN e.started_ago_ms IS NOT NULL
            THEN greatest(c.now - e.started_ago_ms * interval '1 millisecond', '1970-01-01 00:00:00+00')
        END AS started_at
    ) s
),
history AS (
    INSERT INTO ratchet.scheduler_job_execution (
        job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms
    )
    SELECT
        r.job_id, r.version, :owner::text, 'SUCCEEDED', r.attempts, r.started_at, r.now,
        (date_part('epoch', r.ended_at - r.started_at) * 1000)::bigint
    FROM recorded r
),
cold AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = 'SUCCEEDED',
        terminated_at = r.now,
        version = r.version + 1,
        terminal_error = NULL,
        error_fingerprint = NULL,
        cancel_reason = NULL,
        total_attempts = r.attempts,
        crash_count = r.crash_count,
        blocked_by = r.blocked_by,
        open_parents = r.open_parents,
        edge_count = 0,
        scheduled_time = r.scheduled_time,
        execution_start_time = r.started_at,
        execution_end_time = r.ended_at,
        queue_wait_ms = greatest((date_part('epoch', r.picked_at - r.scheduled_time) * 1000)::bigint, 0),
        job_result = r.result::json,
        progress = r.progress
    FROM recorded r
    WHERE j.job_id = r.job_id
),
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation k USING ended e
    WHERE k.business_key = e.business_key AND k.owner_job_id = e.job_id
),
permits AS (
    DELETE FROM ratchet.scheduler_resource_permit p USING ended e WHERE p.job_id = e.job_id
)
SELECT array_agg(e.job_id) AS job_ids FROM ended e
