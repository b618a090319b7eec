-- Moves old ended jobs into the archive. Ids are time-ordered, so the oldest stand first in the primary key.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
old AS MATERIALIZED (
    SELECT j.job_id
    FROM ratchet.scheduler_job j CROSS JOIN clock c
    WHERE j.terminated_at < c.now - interval '1 millisecond' * CASE j.terminal_status
            WHEN 'FAILED' THEN :failed_ms::bigint
            ELSE :ended_ms::bigint
        END
      AND j.terminal_status IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM ratchet.scheduler_batch b WHERE b.batch_id = j.batch_id AND b.completed_at IS NULL
      )
    ORDER BY j.terminated_at, j.job_id
    LIMIT :lim::bigint
    FOR UPDATE OF j SKIP LOCKED
),
archived AS (
    INSERT INTO ratchet.scheduler_job_archive (
        original_job_id, final_status, job_type, priority, queue, payload, target, method, business_key, tags,
        total_attempts, final_error, job_result, created_at, terminated_at, archived_at
    )
    SELECT
        j.job_id, j.terminal_status, j.job_type, j.priority, j.queue, j.payload, j.target, j.method, j.business_key,
        ARRAY(SELECT t.tag FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id ORDER BY t.place),
        j.total_attempts, j.terminal_error, j.job_result, j.created_at, j.terminated_at, c.now
    FROM old o JOIN ratchet.scheduler_job j ON j.job_id = o.job_id CROSS JOIN clock c
    ON CONFLICT DO NOTHING
),
executions AS (DELETE FROM ratchet.scheduler_job_execution x USING old o WHERE x.job_id = o.job_id),
logs AS (DELETE FROM ratchet.scheduler_job_log x USING old o WHERE x.job_id = o.job_id),
edges_from AS (DELETE FROM ratchet.scheduler_job_edge x USING old o WHERE x.parent_id = o.job_id),
edges_to AS (DELETE FROM ratchet.scheduler_job_edge x USING old o WHERE x.child_id = o.job_id),
alerts AS (DELETE FROM ratchet.scheduler_dlq_alert x USING old o WHERE x.job_id = o.job_id)
DELETE FROM ratchet.scheduler_job j USING old o WHERE j.job_id = o.job_id
