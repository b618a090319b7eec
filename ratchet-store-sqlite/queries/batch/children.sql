SELECT v.*
FROM ratchet.vw_jobs v
WHERE v.batch_id = :batch_id
  AND (:after IS NULL OR v.job_id > :after)
  AND (:status IS NULL OR v.status = :status)
ORDER BY v.job_id
LIMIT :lim
