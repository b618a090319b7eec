-- Stores jobs that are checked as far as they can be: both rows, keys and tags. Keys that are taken provoke no error;
-- whoever does not get them all is not stored. The answer tells for each job how far it came.
--
-- A job that got its idempotency key but not its business key leaves a ledger row behind: insert/undo_keys.sql removes
-- it in the same transaction.
DELETE FROM temp.given_job;

INSERT INTO temp.given_job (
    place, job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, payload, target, method,
    due_at, blocked_by, open_parents, now
)
SELECT
    g.key, unhex(g.value ->> 0), g.value ->> 1, g.value ->> 2, g.value ->> 3, g.value ->> 4, g.value ->> 5,
    g.value ->> 6, g.value ->> 7, g.value ->> 8, g.value ->> 9,
    coalesce(g.value ->> 11, min(c.now + (g.value ->> 10), 253370764799999)), g.value ->> 12, g.value ->> 13, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN jsonb_each(:[
    job_ids, job_types, queues, priorities, max_retries, backoff_policies, backoff_params, payloads, targets, methods,
    delays, instants, blocked_by, open_parents
]) g;

-- What most jobs have nothing of is read only where there is something: half the work of this script.
UPDATE temp.given_job AS g
SET timeout_ms = r.value ->> 0, expires_at = r.value ->> 1, params = r.value ->> 2,
    on_success_payload = r.value ->> 3, on_success_target = r.value ->> 4, on_success_method = r.value ->> 5,
    on_failure_payload = r.value ->> 6, on_failure_target = r.value ->> 7, on_failure_method = r.value ->> 8,
    idempotency_key = r.value ->> 9, key_hash = unhex(r.value ->> 10), business_key = r.value ->> 11,
    resource_name = r.value ->> 12, caller_principal = r.value ->> 13, trace_context = r.value ->> 14,
    batch_id = unhex(r.value ->> 15), depends_on = unhex(r.value ->> 16)
FROM jsonb_each(:[
    timeouts, expiries, params, success_payloads, success_targets, success_methods, failure_payloads, failure_targets,
    failure_methods, idempotency_keys, key_hashes, business_keys, resources, principals, traces, batches, depends_on
]) r
WHERE g.place = r.key
  AND r.value <> jsonb('[null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null]');

UPDATE temp.given_job AS g
SET known = 1
WHERE EXISTS (SELECT 1 FROM ratchet.scheduler_job j WHERE j.job_id = g.job_id);

-- Whoever finds his key free asks for it; of two in one call the first gets it.
UPDATE temp.given_job AS g
SET in_ledger = NOT EXISTS (SELECT 1 FROM ratchet.scheduler_idempotency_key k WHERE k.key_hash = g.key_hash)
WHERE g.key_hash IS NOT NULL AND NOT g.known;

INSERT INTO ratchet.scheduler_idempotency_key (key_hash, job_id, created_at)
SELECT g.key_hash, g.job_id, g.now FROM temp.given_job g WHERE g.in_ledger ORDER BY g.place
ON CONFLICT DO NOTHING;

UPDATE temp.given_job AS g
SET in_ledger = 0
WHERE g.in_ledger
  AND g.job_id <> (SELECT k.job_id FROM ratchet.scheduler_idempotency_key k WHERE k.key_hash = g.key_hash);

UPDATE temp.given_job AS g
SET has_key = NOT EXISTS (
    SELECT 1 FROM ratchet.scheduler_business_key_reservation r WHERE r.business_key = g.business_key
)
WHERE g.business_key IS NOT NULL AND NOT g.known AND (g.key_hash IS NULL OR g.in_ledger);

INSERT INTO ratchet.scheduler_business_key_reservation (business_key, owner_job_id, owner_table, reserved_at)
SELECT g.business_key, g.job_id, 'QUEUE', g.now FROM temp.given_job g WHERE g.has_key ORDER BY g.place
ON CONFLICT DO NOTHING;

UPDATE temp.given_job AS g
SET has_key = 0
WHERE g.has_key AND g.job_id <> (
    SELECT r.owner_job_id FROM ratchet.scheduler_business_key_reservation r WHERE r.business_key = g.business_key
);

UPDATE temp.given_job AS g
SET stored = 0
WHERE g.known OR (g.key_hash IS NOT NULL AND NOT g.in_ledger) OR (g.business_key IS NOT NULL AND NOT g.has_key);

INSERT INTO ratchet.scheduler_job (
    job_id, job_type, queue, priority, max_retries, backoff_policy, backoff_param_ms, timeout_ms, expires_at,
    payload, target, method, params, on_success_payload, on_success_target, on_success_method,
    on_failure_payload, on_failure_target, on_failure_method, idempotency_key, business_key, resource_name,
    caller_principal, trace_context, batch_id, depends_on, created_at
)
SELECT
    g.job_id, g.job_type, g.queue, g.priority, g.max_retries, g.backoff_policy, g.backoff_param_ms, g.timeout_ms,
    g.expires_at, g.payload, g.target, g.method, g.params, g.on_success_payload, g.on_success_target,
    g.on_success_method, g.on_failure_payload, g.on_failure_target, g.on_failure_method, g.idempotency_key,
    g.business_key, g.resource_name, g.caller_principal, g.trace_context, g.batch_id, g.depends_on, g.now
FROM temp.given_job g
WHERE g.stored;

INSERT INTO ratchet.scheduler_job_queue (
    job_id, status, job_type, queue, priority, scheduled_time, business_key, timeout_ms, max_retries, expires_at,
    batch_id, blocked_by, open_parents, updated_at
)
SELECT
    g.job_id, 'PENDING', g.job_type, g.queue, g.priority, g.due_at, g.business_key, g.timeout_ms, g.max_retries,
    g.expires_at, g.batch_id, g.blocked_by, g.open_parents, g.now
FROM temp.given_job g
WHERE g.stored;

INSERT INTO ratchet.scheduler_job_tag (job_id, tag, place)
SELECT unhex(t.value ->> 0), t.value ->> 1, t.key
FROM jsonb_each(:[tag_jobs, tags]) t
WHERE unhex(t.value ->> 0) IN (SELECT g.job_id FROM temp.given_job g WHERE g.stored)
ON CONFLICT DO NOTHING;

SELECT
    'job_id stored in_ledger has_key' AS names,
    json_group_array(json_array(
        hex(g.job_id), g.stored, g.in_ledger, g.has_key
    )) AS rows
FROM temp.given_job g
