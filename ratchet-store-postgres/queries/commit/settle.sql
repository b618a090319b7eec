-- Records outcomes: history, both rows, key and permit. Only for the present owner and fence.
--
-- With `everything` false this is the whole of a plain outcome, and it leaves alone what needs more: jobs with edges or
-- a batch, and those whose cancel was requested. With `everything` true the caller holds the rows and does the rest.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
-- In the order of the ids, so that two calls wait for each other in one direction only. The last condition always holds;
-- it makes the planner expect one row, and so look each job up by its id, however little it knows about the tables.
-- (`= ANY(ARRAY[…])` for the same reason: where it believes a table to be empty, reading all of it looks as cheap as one
-- look by the key, and only an equality could be answered that way.)
given AS MATERIALIZED (
    SELECT
        g.*, c.now, s.started_at,
        CASE
            WHEN s.started_at IS NOT NULL THEN least(s.started_at + g.ran_ms * interval '1 millisecond', c.now)
        END AS ended_at
    FROM unnest(
        :job_ids::uuid[], :fences::bigint[], :ends::text[], :delays::bigint[], :failures::bigint[], :crashes::bigint[],
        :history::text[], :started_ago::bigint[], :ran_for::bigint[], :results::text[], :errors::text[],
        :error_classes::text[], :fingerprints::text[], :reasons::text[]
    ) AS g (
        job_id, fence, ended_as, delay_ms, failures, crashes, history, started_ago_ms, ran_ms, result, error,
        error_class, fingerprint, reason
    )
    CROSS JOIN clock c
    -- `greatest` and `least` pass over nulls, so a body that never started is told apart first.
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN g.started_ago_ms IS NOT NULL
            THEN greatest(c.now - g.started_ago_ms * interval '1 millisecond', '1970-01-01 00:00:00+00')
        END AS started_at
    ) s
    WHERE g.fence + 0 = g.fence
    ORDER BY g.job_id
),
ended AS (
    DELETE FROM ratchet.scheduler_job_queue q USING given g
    WHERE q.job_id = ANY(ARRAY[g.job_id]) AND q.version = g.fence AND q.picked_by = :owner::text AND g.ended_as IS NOT NULL
      AND (:everything::boolean OR (NOT q.cancel_requested AND q.edge_count = 0 AND q.batch_id IS NULL))
    RETURNING
        g.job_id, g.fence, g.ended_as, g.history, g.now, g.started_at, g.ended_at, g.result, g.error, g.error_class,
        g.fingerprint, q.business_key, q.scheduled_time, q.picked_at, least(q.attempts, 4294967294) + g.failures AS attempts,
        least(q.crash_count, 4294967294) + g.crashes AS crash_count, q.blocked_by, q.open_parents, q.edge_count, q.progress,
        CASE WHEN g.ended_as <> 'SUCCEEDED' THEN coalesce(g.error, q.last_error) END AS last_error,
        coalesce(q.cancel_reason, g.reason) AS cancel_reason
),
waiting AS (
    UPDATE ratchet.scheduler_job_queue q
    SET status = 'PENDING',
        scheduled_time = CASE
            WHEN g.delay_ms IS NULL THEN least(q.scheduled_time, g.now)
            ELSE least(g.now + g.delay_ms * interval '1 millisecond', '9998-12-31 23:59:59.999+00')
        END,
        version = least(g.fence, 9223372036854775806) + 1,
        attempts = least(q.attempts, 4294967294) + g.failures,
        crash_count = least(q.crash_count, 4294967294) + g.crashes,
        last_error = coalesce(g.error, q.last_error),
        picked_by = NULL,
        picked_at = NULL,
        progress = NULL,
        -- What it is parked on, if it is.
        parked_on = g.reason,
        updated_at = g.now
    FROM given g
    WHERE q.job_id = ANY(ARRAY[g.job_id]) AND q.version = g.fence AND q.picked_by = :owner::text AND g.ended_as IS NULL
      AND (:everything::boolean OR NOT q.cancel_requested)
    RETURNING
        g.job_id, g.fence, g.history, g.now, g.started_at, g.ended_at, g.error, g.error_class, q.attempts,
        q.scheduled_time AS next_due
),
recorded AS (
    SELECT job_id, fence, history, attempts, now, started_at, ended_at, error_class, error FROM ended
    UNION ALL
    SELECT job_id, fence, history, attempts, now, started_at, ended_at, error_class, error FROM waiting
),
history AS (
    INSERT INTO ratchet.scheduler_job_execution (
        job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms, error_class, error_message
    )
    SELECT
        r.job_id, r.fence, :owner::text, r.history, r.attempts, r.started_at, r.now,
        (date_part('epoch', r.ended_at - r.started_at) * 1000)::bigint, r.error_class, r.error
    FROM recorded r
    WHERE r.history IS NOT NULL
    -- A fence that was set back by hand may meet a row of its own job.
    ON CONFLICT (job_id, fence) DO UPDATE
    SET node_id = excluded.node_id, status = excluded.status, attempt = excluded.attempt,
        started_at = excluded.started_at, recorded_at = excluded.recorded_at, duration_ms = excluded.duration_ms,
        error_class = excluded.error_class, error_message = excluded.error_message
),
cold AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = e.ended_as,
        terminated_at = e.now,
        version = least(e.fence, 9223372036854775806) + 1,
        terminal_error = e.last_error,
        error_fingerprint = e.fingerprint,
        cancel_reason = e.cancel_reason,
        total_attempts = e.attempts,
        crash_count = e.crash_count,
        blocked_by = e.blocked_by,
        open_parents = e.open_parents,
        edge_count = e.edge_count,
        scheduled_time = e.scheduled_time,
        execution_start_time = e.started_at,
        execution_end_time = e.ended_at,
        queue_wait_ms = CASE
            WHEN isfinite(e.scheduled_time) AND isfinite(e.picked_at)
            THEN greatest((date_part('epoch', e.picked_at - e.scheduled_time) * 1000)::bigint, 0)
        END,
        job_result = e.result::json,
        progress = e.progress
    FROM ended e
    WHERE j.job_id = ANY(ARRAY[e.job_id])
),
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation r USING ended e
    WHERE r.business_key = e.business_key AND r.owner_job_id = e.job_id
),
permits AS (
    DELETE FROM ratchet.scheduler_resource_permit p USING recorded r WHERE p.job_id = ANY(ARRAY[r.job_id])
)
SELECT e.job_id, NULL::timestamptz AS next_due FROM ended e
UNION ALL
SELECT w.job_id, w.next_due FROM waiting w
