-- Writes down what is kept of jobs.
INSERT INTO ratchet.scheduler_job_archive (
    original_job_id, final_status, job_type, priority, queue, payload, target, method, business_key, tags,
    total_attempts, final_error, job_result, created_at, terminated_at, archived_at
)
SELECT
    j.job_id, j.terminal_status, j.job_type, j.priority, j.queue, j.payload, j.target, j.method, j.business_key,
    ARRAY(SELECT t.tag FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id ORDER BY t.place),
    j.total_attempts, j.terminal_error, j.job_result, j.created_at, j.terminated_at,
    coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
FROM ratchet.scheduler_job j
WHERE j.job_id = ANY(:job_ids::uuid[])
ON CONFLICT DO NOTHING
