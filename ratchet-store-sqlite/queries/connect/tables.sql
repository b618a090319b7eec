-- What the steps of one script hand on to the next: made once for each writing connection, in memory, and emptied by
-- every script that uses it.

-- insert/jobs.sql, and specs in insert/bare.sql
CREATE TEMP TABLE IF NOT EXISTS given_job (
    place INTEGER PRIMARY KEY, job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms,
    timeout_ms, expires_at, payload, target, method, params, on_success_payload, on_success_target, on_success_method,
    on_failure_payload, on_failure_target, on_failure_method, idempotency_key, key_hash, business_key, resource_name,
    caller_principal, trace_context, batch_id, depends_on, due_at, blocked_by, open_parents, now,
    known NOT NULL DEFAULT 0, in_ledger NOT NULL DEFAULT 0, has_key NOT NULL DEFAULT 0, stored NOT NULL DEFAULT 1
);

-- commit/settle.sql, commit/succeed.sql
CREATE TEMP TABLE IF NOT EXISTS outcome (
    place INTEGER PRIMARY KEY, job_id, fence, ended_as, next_due, attempts, crash_count, history, started_at, ran_ms,
    result, error, error_class, fingerprint, reason, last_error, cancel_reason, business_key, scheduled_time,
    picked_at, blocked_by, open_parents, edge_count, progress, now
);

-- Jobs that a script takes, ends or removes, in order.
CREATE TEMP TABLE IF NOT EXISTS chosen (
    place INTEGER PRIMARY KEY, job_id, now, owner, parked_on, is_fresh, lacks NOT NULL DEFAULT 0
);

-- job/end_waiting.sql
CREATE TEMP TABLE IF NOT EXISTS gone_job (
    job_id, batch_id, business_key, paused_from_status, version, cancel_reason, last_error, attempts, crash_count,
    blocked_by, open_parents, edge_count, scheduled_time, progress
);

-- edge/settle_children.sql
CREATE TEMP TABLE IF NOT EXISTS settled_child (job_id, released, hopeless);

-- claim/claim.sql
CREATE TEMP TABLE IF NOT EXISTS wanted_queue (queue, lim, boost_ms, now);

-- claim/pull.sql
CREATE TEMP TABLE IF NOT EXISTS wanted_parking (queue, parked_on, free, boost_ms, now);
CREATE TEMP TABLE IF NOT EXISTS parked_head (job_id, level, scheduled_time, parked_on);
