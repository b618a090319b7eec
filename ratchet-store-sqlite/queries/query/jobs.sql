SELECT v.*
FROM ratchet.vw_jobs v
WHERE (:after IS NULL OR v.job_id < :after)
  AND (json_array_length(:statuses) = 0 OR v.status IN (SELECT s.value FROM json_each(:statuses) s))
  AND (json_array_length(:types) = 0 OR v.job_type IN (SELECT t.value FROM json_each(:types) t))
  AND (:queue IS NULL OR v.queue = :queue)
  AND (:target IS NULL OR v.target = :target)
  AND (:business_key IS NULL OR v.business_key = :business_key)
  AND (:principal IS NULL OR v.caller_principal = :principal)
  AND (:created_from IS NULL OR v.created_at >= :created_from)
  AND (:created_until IS NULL OR v.created_at < :created_until)
  AND NOT EXISTS (
      SELECT 1 FROM json_each(:tags) t
      WHERE NOT EXISTS (SELECT 1 FROM ratchet.scheduler_job_tag k WHERE k.job_id = v.job_id AND k.tag = t.value)
  )
ORDER BY v.job_id DESC
LIMIT :lim
