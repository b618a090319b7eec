SELECT t.job_id
FROM ratchet.scheduler_job_tag t
WHERE t.tag = :tag AND (:after IS NULL OR t.job_id > :after)
ORDER BY t.job_id
LIMIT :lim
