-- Moves old ended jobs into the archive, those that ended first.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id, now)
SELECT j.job_id, coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
FROM ratchet.scheduler_job j
WHERE j.terminal_status IS NOT NULL
  -- The first bound finds the end of the index range, the second is exact.
  AND j.terminated_at < coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) - min(:failed_ms, :ended_ms)
  AND j.terminated_at < coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
      - CASE j.terminal_status WHEN 'FAILED' THEN :failed_ms ELSE :ended_ms END
  AND NOT EXISTS (
      SELECT 1 FROM ratchet.scheduler_batch b WHERE b.batch_id = j.batch_id AND b.completed_at IS NULL
  )
ORDER BY j.terminated_at, j.job_id
LIMIT :lim;

INSERT INTO ratchet.scheduler_job_archive (
    original_job_id, final_status, job_type, priority, queue, payload, target, method, business_key, tags,
    total_attempts, final_error, job_result, created_at, terminated_at, archived_at
)
SELECT
    j.job_id, j.terminal_status, j.job_type, j.priority, j.queue, j.payload, j.target, j.method, j.business_key,
    (SELECT json_group_array(t.tag ORDER BY t.place) FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id),
    j.total_attempts, j.terminal_error, j.job_result, j.created_at, j.terminated_at, c.now
FROM temp.chosen c CROSS JOIN ratchet.scheduler_job j ON j.job_id = c.job_id
WHERE true
ON CONFLICT DO NOTHING;

DELETE FROM ratchet.scheduler_job_execution WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_log WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE parent_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job_edge WHERE child_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_dlq_alert WHERE job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_job WHERE job_id IN (SELECT c.job_id FROM temp.chosen c)
