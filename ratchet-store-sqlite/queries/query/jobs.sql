-- One comparison with the id, so that the plan goes down the primary key from there: page after page, each row is met once.
SELECT v.*
FROM ratchet.vw_jobs v
WHERE v.job_id < coalesce(:after, X'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF')
  -- Nothing else is an id.
  AND length(v.job_id) = 16
  AND (json_array_length(:statuses) = 0 OR v.status IN (SELECT s.value FROM json_each(:statuses) s))
  AND (json_array_length(:types) = 0 OR v.job_type IN (SELECT t.value FROM json_each(:types) t))
  AND (:queue IS NULL OR v.queue = :queue)
  AND (:target IS NULL OR v.target = :target)
  AND (:method IS NULL OR v.method = :method)
  AND (:business_key IS NULL OR v.business_key = :business_key)
  AND (:principal IS NULL OR v.caller_principal = :principal)
  AND (:created_from IS NULL OR v.created_at >= :created_from)
  AND (:created_until IS NULL OR v.created_at < :created_until)
  -- A job that was brought back keeps when it had ended, but not that it has.
  AND (:ended_from IS NULL OR (v.terminal_status IS NOT NULL AND v.terminated_at >= :ended_from))
  AND (:ended_until IS NULL OR (v.terminal_status IS NOT NULL AND v.terminated_at < :ended_until))
  AND (:fingerprint IS NULL OR v.error_fingerprint = :fingerprint)
  AND NOT EXISTS (
      SELECT 1 FROM json_each(:tags) t
      WHERE NOT EXISTS (SELECT 1 FROM ratchet.scheduler_job_tag k WHERE k.job_id = v.job_id AND k.tag = t.value)
  )
ORDER BY v.job_id DESC
LIMIT :lim
