-- Locks jobs that are old enough for the archive, those that ended first.
SELECT j.job_id
FROM ratchet.scheduler_job j
CROSS JOIN (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
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
