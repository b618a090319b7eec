-- Jobs that are still held under the fence of their claim. Such a job has a queue row and no end, and is no schedule.
-- The last condition always holds: see commit/settle.sql.
SELECT
    g.place, q.cancel_requested, j.payload::text AS payload, j.target, j.method, j.job_type, j.queue, j.priority,
    j.params::text AS params, j.max_retries, j.backoff_policy, j.backoff_param_ms, j.timeout_ms, j.expires_at,
    j.idempotency_key, j.business_key, j.resource_name,
    CASE
        WHEN EXISTS (SELECT FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id)
        THEN ARRAY(SELECT t.tag FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id ORDER BY t.place)
    END AS tags,
    j.caller_principal, j.trace_context,
    j.on_success_payload::text AS on_success_payload, j.on_success_target, j.on_success_method,
    j.on_failure_payload::text AS on_failure_payload, j.on_failure_target, j.on_failure_method, j.batch_id,
    j.created_at, q.scheduled_time, q.attempts, q.crash_count, q.picked_by, q.picked_at, q.last_error, q.blocked_by,
    q.open_parents, q.edge_count, j.depends_on, q.progress::text AS progress
FROM unnest(:job_ids::uuid[], :fences::bigint[]) WITH ORDINALITY AS g (wanted, fence, place)
JOIN ratchet.scheduler_job_queue q ON q.job_id = g.wanted AND q.version = g.fence
JOIN ratchet.scheduler_job j ON j.job_id = q.job_id
WHERE q.picked_by IS NOT NULL AND g.fence + 0 = g.fence
