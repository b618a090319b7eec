SELECT
    a.original_job_id AS job_id, a.final_status, a.job_type, a.priority, a.queue, a.payload, a.target, a.method,
    a.business_key, a.tags, a.total_attempts, a.final_error, a.job_result, a.created_at, a.terminated_at, a.archived_at
FROM ratchet.scheduler_job_archive a
WHERE (:target IS NULL OR a.target = :target)
  AND (:business_key IS NULL OR a.business_key = :business_key)
  AND (:before IS NULL OR a.original_job_id < :before)
ORDER BY a.original_job_id DESC
LIMIT :lim
