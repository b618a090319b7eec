-- Goes down the primary key and joins each row by itself, whatever the statistics say: page after page, each row is met
-- once. For that, one comparison with the id is the index condition, and `coalesce` keeps the planner from guessing that
-- so few rows match that sorting them all would be cheap.
SELECT v.*
FROM ratchet.scheduler_job j
CROSS JOIN LATERAL (SELECT w.* FROM ratchet.vw_jobs w WHERE w.job_id = j.job_id OFFSET 0) v
WHERE j.job_id < coalesce(:after::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
  AND coalesce(
      -- An ended job shows its status here; only a live one needs its other row for that.
      (cardinality(:statuses::text[]) = 0 OR j.terminal_status IS NULL OR j.terminal_status = ANY(:statuses::text[]))
      AND (cardinality(:types::text[]) = 0 OR j.job_type = ANY(:types::text[]))
      AND (:queue::text IS NULL OR j.queue = :queue::text)
      AND (:target::text IS NULL OR j.target = :target::text)
      AND (:method::text IS NULL OR j.method = :method::text)
      AND (:business_key::text IS NULL OR j.business_key = :business_key::text)
      AND (:principal::text IS NULL OR j.caller_principal = :principal::text)
      AND (:created_from::timestamptz IS NULL OR j.created_at >= :created_from::timestamptz)
      AND (:created_until::timestamptz IS NULL OR j.created_at < :created_until::timestamptz)
      -- A job that was brought back keeps when it had ended, but not that it has.
      AND (:ended_from::timestamptz IS NULL
          OR (j.terminal_status IS NOT NULL AND j.terminated_at >= :ended_from::timestamptz))
      AND (:ended_until::timestamptz IS NULL
          OR (j.terminal_status IS NOT NULL AND j.terminated_at < :ended_until::timestamptz))
      AND (:fingerprint::text IS NULL OR j.error_fingerprint = :fingerprint::text)
      AND NOT EXISTS (
          SELECT FROM unnest(:tags::text[]) AS t (tag)
          WHERE NOT EXISTS (SELECT FROM ratchet.scheduler_job_tag k WHERE k.job_id = j.job_id AND k.tag = t.tag)
      ),
      false
  )
  AND coalesce(cardinality(:statuses::text[]) = 0 OR v.status = ANY(:statuses::text[]), false)
ORDER BY j.job_id DESC
LIMIT :lim::bigint
