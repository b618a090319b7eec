-- Old dead letters, those that ended first.
SELECT j.job_id
FROM ratchet.scheduler_job j
WHERE j.terminal_status = 'FAILED'
  AND j.terminated_at < coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) - :retention_ms
ORDER BY j.terminated_at, j.job_id
LIMIT :lim
