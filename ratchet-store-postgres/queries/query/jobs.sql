SELECT v.*
FROM ratchet.vw_jobs v
WHERE (:after::uuid IS NULL OR v.job_id < :after::uuid)
  AND (cardinality(:statuses::text[]) = 0 OR v.status = ANY(:statuses::text[]))
  AND (cardinality(:types::text[]) = 0 OR v.job_type = ANY(:types::text[]))
  AND (:queue::text IS NULL OR v.queue = :queue::text)
  AND (:target::text IS NULL OR v.target = :target::text)
  AND (:method::text IS NULL OR v.method = :method::text)
  AND (:business_key::text IS NULL OR v.business_key = :business_key::text)
  AND (:principal::text IS NULL OR v.caller_principal = :principal::text)
  AND (:created_from::timestamptz IS NULL OR v.created_at >= :created_from::timestamptz)
  AND (:created_until::timestamptz IS NULL OR v.created_at < :created_until::timestamptz)
  -- A job that was brought back keeps when it had ended, but not that it has.
  AND (:ended_from::timestamptz IS NULL OR (v.terminal_status IS NOT NULL AND v.terminated_at >= :ended_from::timestamptz))
  AND (:ended_until::timestamptz IS NULL OR (v.terminal_status IS NOT NULL AND v.terminated_at < :ended_until::timestamptz))
  AND (:fingerprint::text IS NULL OR v.error_fingerprint = :fingerprint::text)
  AND NOT EXISTS (
      SELECT FROM unnest(:tags::text[]) AS t (tag)
      WHERE NOT EXISTS (SELECT FROM ratchet.scheduler_job_tag k WHERE k.job_id = v.job_id AND k.tag = t.tag)
  )
ORDER BY v.job_id DESC
LIMIT :lim::bigint
