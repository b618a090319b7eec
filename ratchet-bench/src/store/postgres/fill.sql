-- A part of a backlog, behind the store's back.
WITH given AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::smallint[], $4::timestamptz[], $5::text[], $6::bigint[])
        AS g (job_id, queue, priority, due, status, blocked_by)
),
cold AS (
    INSERT INTO scheduler_job (job_id, job_type, queue, priority, payload, target, method, created_at)
    SELECT g.job_id, 'SINGLE', g.queue, g.priority, $7::json, 'billing.Invoices', 'send', now()
    FROM given g
)
INSERT INTO scheduler_job_queue (
    job_id, status, job_type, queue, priority, scheduled_time, max_retries, blocked_by, open_parents,
    paused_from_status, updated_at
)
SELECT
    g.job_id, g.status, 'SINGLE', g.queue, g.priority, g.due, 0, g.blocked_by, g.blocked_by,
    CASE WHEN g.status = 'PAUSED' THEN 'PENDING' END, now()
FROM given g
