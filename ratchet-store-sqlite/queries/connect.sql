-- What the steps of one script hand on to the next: made once for each writing connection, in memory, and emptied by
-- every script that uses it.

-- insert/jobs.sql
CREATE TEMP TABLE given_job (
    place INTEGER PRIMARY KEY, job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms,
    timeout_ms, expires_at, payload, target, method, params, on_success_payload, on_success_target, on_success_method,
    on_failure_payload, on_failure_target, on_failure_method, idempotency_key, key_hash, business_key, resource_name,
    caller_principal, trace_context, batch_id, depends_on, due_at, blocked_by, open_parents, now,
    known NOT NULL DEFAULT 0, in_ledger NOT NULL DEFAULT 0, has_key NOT NULL DEFAULT 0, stored NOT NULL DEFAULT 1
);

-- commit/settle.sql
CREATE TEMP TABLE outcome (
    place INTEGER PRIMARY KEY, job_id, fence, ended_as, next_due, attempts, crash_count, history, started_at, ran_ms,
    result, error, error_class, fingerprint, reason, last_error, cancel_reason, business_key, scheduled_time,
    picked_at, blocked_by, open_parents, edge_count, progress, now
);

-- Jobs that a script takes, ends or removes, in order.
CREATE TEMP TABLE chosen (place INTEGER PRIMARY KEY, job_id, now, owner);

-- job/end_waiting.sql
CREATE TEMP TABLE gone_job (
    job_id, batch_id, business_key, paused_from_status, version, cancel_reason, last_error, attempts, crash_count,
    blocked_by, open_parents, edge_count, scheduled_time, progress
);

-- edge/settle_children.sql
CREATE TEMP TABLE settled_child (job_id, released, hopeless);

-- claim/claim.sql
CREATE TEMP TABLE wanted_queue (queue, lim, boost_ms, now);

-- The loop over queues, which SQL has no other word for. Five index heads: inside one level older always means better,
-- so the best rows of a queue are among the first of each level.
CREATE TEMP TRIGGER choose_best AFTER INSERT ON wanted_queue
BEGIN
    INSERT INTO chosen (job_id, now)
    SELECT h.job_id, new.now
    FROM (
        SELECT * FROM (
            SELECT 0 AS level, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 0 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= new.now
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 1, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 1 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= new.now
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 2, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 2 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= new.now
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 3, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 3 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= new.now
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 4, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 4 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.scheduled_time <= new.now
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
    ) h
    ORDER BY
        h.level + CASE WHEN new.boost_ms > 0 THEN (new.now - h.scheduled_time) / new.boost_ms ELSE 0 END DESC,
        h.scheduled_time,
        h.job_id
    LIMIT new.lim;
END;
