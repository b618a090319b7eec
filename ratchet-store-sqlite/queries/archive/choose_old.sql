-- Jobs that are old enough for the archive, those that ended first.
SELECT j.job_id
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
LIMIT :lim
