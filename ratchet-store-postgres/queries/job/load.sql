-- Jobs that are still held under the fence of their claim, as `vw_jobs` shows them. Such a job has a queue row and no
-- end, and is no schedule. The last condition always holds: see commit/settle.sql.
SELECT
    g.place, j.job_id, j.job_type, j.queue, j.priority, j.max_retries, j.backoff_policy, j.backoff_param_ms,
    j.timeout_ms, j.expires_at, j.payload::text AS payload, j.target, j.method, j.params::text AS params,
    j.on_success_payload::text AS on_success_payload, j.on_success_target, j.on_success_method,
    j.on_failure_payload::text AS on_failure_payload, j.on_failure_target, j.on_failure_method,
    j.idempotency_key, j.business_key, j.resource_name, j.caller_principal, j.trace_context, j.batch_id,
    j.depends_on, j.superseded_by, j.created_at,
    NULL::text AS cron_expr, NULL::text AS zone_id, NULL::timestamptz AS next_fire, NULL::text AS rec_status,
    CASE WHEN EXISTS (SELECT FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id) THEN ARRAY(SELECT t.tag FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id ORDER BY t.place) ELSE ARRAY[]::text[] END AS tags,
    CASE WHEN q.cancel_requested THEN 'CANCELED' ELSE q.status END AS status,
    q.version, q.scheduled_time, q.attempts, q.crash_count, q.blocked_by, q.open_parents, q.edge_count,
    q.picked_by, q.picked_at, q.paused_from_status, q.last_error, q.cancel_reason, q.progress::text AS progress,
    q.cancel_requested,
    NULL::text AS terminal_status, NULL::text AS error_fingerprint, NULL::timestamptz AS terminated_at,
    NULL::timestamptz AS execution_start_time, NULL::timestamptz AS execution_end_time,
    NULL::bigint AS queue_wait_ms, NULL::text AS job_result
FROM unnest(:job_ids::uuid[], :fences::bigint[]) WITH ORDINALITY AS g (wanted, fence, place)
JOIN ratchet.scheduler_job_queue q ON q.job_id = g.wanted AND q.version = g.fence
JOIN ratchet.scheduler_job j ON j.job_id = q.job_id
WHERE q.picked_by IS NOT NULL AND g.fence + 0 = g.fence
