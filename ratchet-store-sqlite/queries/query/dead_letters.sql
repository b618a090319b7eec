SELECT f.error_fingerprint, f.members, f.target, f.terminal_error, f.job_id, f.terminated_at
FROM (
    SELECT
        j.error_fingerprint, j.target, j.terminal_error, j.job_id, j.terminated_at,
        count(*) OVER (PARTITION BY j.error_fingerprint) AS members,
        row_number() OVER (PARTITION BY j.error_fingerprint ORDER BY j.terminated_at DESC, j.job_id DESC) AS place
    FROM ratchet.scheduler_job j
    WHERE j.terminal_status = 'FAILED'
) f
WHERE f.place = 1
ORDER BY f.members DESC, f.terminated_at DESC
LIMIT :lim
