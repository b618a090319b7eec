-- Locks jobs that are old enough for the archive. Ids are in the order of time, so the oldest stand first in the primary
-- key, and reading ends with the last that is taken.
SELECT j.job_id
FROM ratchet.scheduler_job j
CROSS JOIN (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
WHERE j.terminated_at < c.now - interval '1 millisecond' * CASE j.terminal_status
        WHEN 'FAILED' THEN :failed_ms::bigint
        ELSE :ended_ms::bigint
    END
  AND j.terminal_status IS NOT NULL
  AND (
      j.batch_id IS NULL
      OR NOT EXISTS (
          SELECT FROM ratchet.scheduler_batch b WHERE b.batch_id = j.batch_id AND b.completed_at IS NULL
      )
  )
ORDER BY j.job_id
LIMIT :lim::bigint
FOR UPDATE OF j SKIP LOCKED
