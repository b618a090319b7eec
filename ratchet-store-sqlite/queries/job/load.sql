-- Jobs that are still held under the fence of their claim.
--
-- Columns that most jobs have nothing in come last, and are left out of a row that has none of them: a row that ends
-- early ends with nulls.
SELECT
    'place job_id job_type queue priority max_retries backoff_policy backoff_param_ms payload target method
     created_at tags status version scheduled_time attempts crash_count blocked_by open_parents edge_count picked_by
     picked_at cancel_requested timeout_ms expires_at params on_success_payload on_success_target on_success_method
     on_failure_payload on_failure_target on_failure_method idempotency_key business_key resource_name
     caller_principal trace_context batch_id depends_on superseded_by cron_expr zone_id next_fire rec_status
     paused_from_status last_error cancel_reason progress terminal_status error_fingerprint terminated_at
     execution_start_time execution_end_time queue_wait_ms job_result' AS names,
    json_group_array(CASE
        WHEN coalesce(
            v.timeout_ms, v.expires_at, v.params, v.on_success_payload, v.on_success_target,
            v.on_success_method, v.on_failure_payload, v.on_failure_target, v.on_failure_method,
            v.idempotency_key, v.business_key, v.resource_name, v.caller_principal, v.trace_context, v.batch_id,
            v.depends_on, v.superseded_by, v.cron_expr, v.zone_id, v.next_fire, v.rec_status,
            v.paused_from_status, v.last_error, v.cancel_reason, v.progress, v.terminal_status,
            v.error_fingerprint, v.terminated_at, v.execution_start_time, v.execution_end_time, v.queue_wait_ms,
            v.job_result
        ) IS NULL
        THEN json_array(
            g.key + 1, hex(v.job_id), v.job_type, v.queue, v.priority, v.max_retries, v.backoff_policy,
            v.backoff_param_ms, v.payload, v.target, v.method, v.created_at, v.tags || '', v.status, v.version,
            v.scheduled_time, v.attempts, v.crash_count, v.blocked_by, v.open_parents, v.edge_count, v.picked_by,
            v.picked_at, v.cancel_requested
        )
        ELSE json_array(
            g.key + 1, hex(v.job_id), v.job_type, v.queue, v.priority, v.max_retries, v.backoff_policy,
            v.backoff_param_ms, v.payload, v.target, v.method, v.created_at, v.tags || '', v.status, v.version,
            v.scheduled_time, v.attempts, v.crash_count, v.blocked_by, v.open_parents, v.edge_count, v.picked_by,
            v.picked_at, v.cancel_requested,
            v.timeout_ms, v.expires_at, v.params, v.on_success_payload, v.on_success_target, v.on_success_method,
            v.on_failure_payload, v.on_failure_target, v.on_failure_method, v.idempotency_key, v.business_key,
            v.resource_name, v.caller_principal, v.trace_context, nullif(hex(v.batch_id), ''),
            nullif(hex(v.depends_on), ''), nullif(hex(v.superseded_by), ''), v.cron_expr, v.zone_id, v.next_fire,
            v.rec_status, v.paused_from_status, v.last_error, v.cancel_reason, v.progress, v.terminal_status,
            v.error_fingerprint, v.terminated_at, v.execution_start_time, v.execution_end_time, v.queue_wait_ms,
            v.job_result
        )
    END) AS rows
FROM jsonb_each(:[job_ids, fences]) g
CROSS JOIN ratchet.vw_jobs v ON v.job_id = unhex(g.value ->> 0) AND v.version = g.value ->> 1
WHERE v.picked_by IS NOT NULL
