-- Removes ended jobs with what hangs on them; tags and batches go with the row.
WITH old AS MATERIALIZED (
    SELECT j.job_id
    FROM ratchet.scheduler_job j
    WHERE j.job_id = ANY(:job_ids::uuid[]) AND j.terminal_status IS NOT NULL
    ORDER BY j.job_id
    FOR UPDATE
),
executions AS (DELETE FROM ratchet.scheduler_job_execution x USING old o WHERE x.job_id = o.job_id),
logs AS (DELETE FROM ratchet.scheduler_job_log x USING old o WHERE x.job_id = o.job_id),
edges_from AS (DELETE FROM ratchet.scheduler_job_edge x USING old o WHERE x.parent_id = o.job_id),
edges_to AS (DELETE FROM ratchet.scheduler_job_edge x USING old o WHERE x.child_id = o.job_id),
alerts AS (DELETE FROM ratchet.scheduler_dlq_alert x USING old o WHERE x.job_id = o.job_id)
DELETE FROM ratchet.scheduler_job j USING old o WHERE j.job_id = o.job_id
