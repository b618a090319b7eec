SELECT l.log_id, l.fence, l.ts, l.level, l.message
FROM ratchet.scheduler_job_log l
WHERE l.job_id = :job_id AND l.log_id > :after
ORDER BY l.log_id
LIMIT :lim
