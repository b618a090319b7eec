-- A part of a backlog, behind the store's back.
INSERT INTO scheduler_job (job_id, job_type, queue, priority, payload, target, method, created_at)
SELECT unhex(g.value ->> 0), 'SINGLE', g.value ->> 1, g.value ->> 2, ?2, 'billing.Invoices', 'send', g.value ->> 3
FROM jsonb_each(?1) g;
INSERT INTO scheduler_job_queue (
    job_id, status, job_type, queue, priority, scheduled_time, max_retries, blocked_by, open_parents,
    paused_from_status, updated_at
)
SELECT
    unhex(g.value ->> 0), g.value ->> 4, 'SINGLE', g.value ->> 1, g.value ->> 2, g.value ->> 3, 0, g.value ->> 5,
    g.value ->> 5, CASE WHEN g.value ->> 4 = 'PAUSED' THEN 'PENDING' END, g.value ->> 3
FROM jsonb_each(?1) g
