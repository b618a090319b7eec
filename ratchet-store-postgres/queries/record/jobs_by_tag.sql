SELECT t.job_id
FROM ratchet.scheduler_job_tag t
WHERE t.tag = :tag::text AND (:after::uuid IS NULL OR t.job_id > :after::uuid)
ORDER BY t.job_id
LIMIT :lim::bigint
