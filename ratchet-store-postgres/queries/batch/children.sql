SELECT v.*
FROM ratchet.vw_jobs v
WHERE v.batch_id = :batch_id::uuid
  AND (:after::uuid IS NULL OR v.job_id > :after::uuid)
  AND (:status::text IS NULL OR v.status = :status::text)
ORDER BY v.job_id
LIMIT :lim::bigint
