-- Jobs that the owner still holds, under whichever fence: what a claim does not say.
--
-- Columns that most jobs have nothing in come last, and are left out of a row that has none of them: a row that ends
-- early ends with nulls.
SELECT
    'job_id version cancel_requested payload target method backoff_policy backoff_param_ms created_at edge_count idempotency_key
     trace_context params expires_at resource_name tags caller_principal on_success_payload on_success_target
     on_success_method on_failure_payload on_failure_target on_failure_method batch_id depends_on blocked_by
     open_parents last_error progress' AS names,
    json_group_array(CASE
        WHEN coalesce(
            j.idempotency_key, j.trace_context, j.params, j.expires_at, j.resource_name, j.caller_principal,
            j.on_success_payload, j.on_failure_payload, j.batch_id, j.depends_on, q.last_error, q.progress
        ) IS NULL
          AND q.blocked_by = 0 AND q.open_parents = 0
          AND NOT EXISTS (SELECT 1 FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id)
        THEN json_array(
            hex(q.job_id), q.version, q.cancel_requested, j.payload, j.target, j.method, j.backoff_policy, j.backoff_param_ms,
            j.created_at, q.edge_count
        )
        ELSE json_array(
            hex(q.job_id), q.version, q.cancel_requested, j.payload, j.target, j.method, j.backoff_policy, j.backoff_param_ms,
            j.created_at, q.edge_count, j.idempotency_key, j.trace_context, j.params, j.expires_at, j.resource_name,
            (
                SELECT json_group_array(t.tag ORDER BY t.place)
                FROM ratchet.scheduler_job_tag t
                WHERE t.job_id = j.job_id
            ) || '',
            j.caller_principal, j.on_success_payload, j.on_success_target, j.on_success_method, j.on_failure_payload,
            j.on_failure_target, j.on_failure_method, nullif(hex(j.batch_id), ''), nullif(hex(j.depends_on), ''),
            q.blocked_by, q.open_parents, q.last_error, q.progress
        )
    END) AS rows
FROM json_each(:job_ids) g
CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = unhex(g.value)
LEFT JOIN ratchet.scheduler_job j ON j.job_id = q.job_id
WHERE q.picked_by = :owner
