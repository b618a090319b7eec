-- Jobs that the owner still holds, under whichever fence: what a claim does not say. Such a job has a queue row and no end,
-- and is no schedule. One without a cold row is told as well: it can only end.
-- Columns that most jobs have nothing in come as one, which is null if there is nothing in any of them. Where nobody uses
-- tags, none is looked for. (Of an array that a SELECT makes the server does not count the ids, so that one plan does for any
-- number of them.)
SELECT
    q.job_id, q.version, nullif(q.cancel_requested, false) AS cancel_requested, j.payload::text AS payload, j.target, j.method,
    j.backoff_policy, nullif(j.backoff_param_ms, 0) AS backoff_param_ms, j.idempotency_key, j.trace_context,
    j.created_at, nullif(q.edge_count, 0) AS edge_count,
    CASE
        WHEN q.blocked_by > 0 OR q.open_parents > 0
          OR num_nonnulls(
            j.params, j.expires_at, j.resource_name, j.caller_principal, j.on_success_payload, j.on_failure_payload,
            j.batch_id, j.depends_on, q.last_error, q.progress
          ) > 0
          OR (
            EXISTS (SELECT FROM ratchet.scheduler_job_tag)
            AND EXISTS (SELECT FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id)
          )
        THEN json_build_object(
            'params', j.params::text,
            'expires_at', CASE
                WHEN isfinite(j.expires_at) THEN (date_part('epoch', j.expires_at) * 1000)::bigint
                WHEN j.expires_at > '1970-01-01 00:00:00+00' THEN 253370764799999
                WHEN j.expires_at IS NOT NULL THEN 0
            END,
            'resource_name', j.resource_name,
            'tags', ARRAY(SELECT t.tag FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id ORDER BY t.place),
            'caller_principal', j.caller_principal,
            'on_success_payload', j.on_success_payload::text,
            'on_success_target', j.on_success_target,
            'on_success_method', j.on_success_method,
            'on_failure_payload', j.on_failure_payload::text,
            'on_failure_target', j.on_failure_target,
            'on_failure_method', j.on_failure_method,
            'batch_id', j.batch_id,
            'depends_on', j.depends_on,
            'blocked_by', q.blocked_by,
            'open_parents', q.open_parents,
            'last_error', q.last_error,
            'progress', q.progress::text
        )::text
    END AS rare
FROM ratchet.scheduler_job_queue q
LEFT JOIN ratchet.scheduler_job j ON j.job_id = ANY(ARRAY[q.job_id])
WHERE q.job_id = ANY(ARRAY(SELECT unnest(:job_ids::uuid[]))) AND q.picked_by = :owner::text
