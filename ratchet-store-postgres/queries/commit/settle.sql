-- Records outcomes: history, both rows, key and permit. Only for the present owner and fence.
--
-- With `everything` false this is the whole of a plain outcome, and it leaves alone what needs more: jobs with edges or
-- a batch, and those whose cancel was requested. With `everything` true the caller holds the rows and does the rest.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
given AS MATERIALIZED (
    SELECT g.*
    FROM unnest(
        :job_ids::uuid[], :fences::bigint[], :ends::text[], :delays::bigint[], :failures::bigint[], :crashes::bigint[],
        :history::text[], :started_ago::bigint[], :ran_for::bigint[], :results::text[], :errors::text[],
        :error_classes::text[], :fingerprints::text[], :reasons::text[]
    ) AS g (
        job_id, fence, ended_as, delay_ms, failures, crashes, history, started_ago_ms, ran_ms, result, error,
        error_class, fingerprint, reason
    )
),
-- One lookup by primary key for each outcome, in the order of the ids. As a plain join, a plan without statistics
-- compares every outcome with every row that the owner holds.
held AS MATERIALIZED (
    SELECT
        g.*, q.business_key, q.scheduled_time, q.picked_at, q.attempts + g.failures AS attempts,
        q.crash_count + g.crashes AS crash_count, q.blocked_by, q.open_parents, q.edge_count, q.progress,
        CASE WHEN g.ended_as = 'SUCCEEDED' THEN NULL ELSE coalesce(g.error, q.last_error) END AS last_error,
        coalesce(q.cancel_reason, g.reason) AS cancel_reason
    FROM (SELECT o.* FROM given o ORDER BY o.job_id) g
    CROSS JOIN LATERAL (
        SELECT r.*
        FROM ratchet.scheduler_job_queue r
        WHERE r.job_id = g.job_id AND r.version = g.fence AND r.picked_by = :owner::text
          AND (:everything::boolean OR (
              NOT r.cancel_requested AND (g.ended_as IS NULL OR (r.edge_count = 0 AND r.batch_id IS NULL))
          ))
        LIMIT 1
        FOR UPDATE
    ) q
),
-- `greatest` and `least` pass over nulls, so a body that never started is told apart first.
timed AS MATERIALIZED (
    SELECT
        h.*, c.now, r.started_at,
        CASE
            WHEN r.started_at IS NOT NULL THEN least(r.started_at + h.ran_ms * interval '1 millisecond', c.now)
        END AS ended_at,
        least(c.now + h.delay_ms * interval '1 millisecond', '9998-12-31 23:59:59.999+00') AS next_due
    FROM held h
    CROSS JOIN clock c
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN h.started_ago_ms IS NOT NULL
            THEN greatest(c.now - h.started_ago_ms * interval '1 millisecond', '1970-01-01 00:00:00+00')
        END AS started_at
    ) r
),
history AS (
    INSERT INTO ratchet.scheduler_job_execution (
        job_id, fence, node_id, status, attempt, started_at, recorded_at, duration_ms, error_class, error_message
    )
    SELECT
        t.job_id, t.fence, :owner::text, t.history, t.attempts, t.started_at, t.now,
        (extract(epoch FROM t.ended_at - t.started_at) * 1000)::bigint, t.error_class, t.error
    FROM timed t
    WHERE t.history IS NOT NULL
    ORDER BY t.job_id
),
ended AS (
    DELETE FROM ratchet.scheduler_job_queue q USING timed t WHERE q.job_id = t.job_id AND t.ended_as IS NOT NULL
),
cold AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = t.ended_as,
        terminated_at = t.now,
        version = t.fence + 1,
        terminal_error = t.last_error,
        error_fingerprint = t.fingerprint,
        cancel_reason = t.cancel_reason,
        total_attempts = t.attempts,
        crash_count = t.crash_count,
        blocked_by = t.blocked_by,
        open_parents = t.open_parents,
        edge_count = t.edge_count,
        scheduled_time = t.scheduled_time,
        execution_start_time = t.started_at,
        execution_end_time = t.ended_at,
        queue_wait_ms = greatest((extract(epoch FROM t.picked_at - t.scheduled_time) * 1000)::bigint, 0),
        job_result = t.result::json,
        progress = t.progress
    FROM timed t
    WHERE j.job_id = t.job_id AND t.ended_as IS NOT NULL
),
waiting AS (
    UPDATE ratchet.scheduler_job_queue q
    SET status = 'PENDING',
        scheduled_time = t.next_due,
        version = t.fence + 1,
        attempts = t.attempts,
        crash_count = t.crash_count,
        last_error = t.last_error,
        picked_by = NULL,
        picked_at = NULL,
        progress = NULL,
        updated_at = t.now
    FROM timed t
    WHERE q.job_id = t.job_id AND t.ended_as IS NULL
),
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation r USING timed t
    WHERE r.business_key = t.business_key AND r.owner_job_id = t.job_id AND t.ended_as IS NOT NULL
),
permits AS (
    DELETE FROM ratchet.scheduler_resource_permit p USING timed t WHERE p.job_id = t.job_id
)
SELECT t.job_id, CASE WHEN t.ended_as IS NULL THEN t.next_due END AS next_due FROM timed t
