-- A line with the greatest number, which somebody gave it by hand, keeps the database from finding the next one; then
-- lines go on after those with ordinary numbers.
INSERT INTO ratchet.scheduler_job_log (log_id, job_id, fence, ts, level, message)
SELECT b.last + 1 + g.key, unhex(g.value ->> 0), g.value ->> 1, c.now, g.value ->> 2, g.value ->> 3
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN (
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM ratchet.scheduler_job_log l WHERE l.log_id > 4611686018427387904)
        THEN coalesce((SELECT max(l.log_id) FROM ratchet.scheduler_job_log l WHERE l.log_id <= 4611686018427387904), 0)
    END AS last
) b
CROSS JOIN jsonb_each(:[job_ids, fences, levels, messages]) g
ORDER BY g.key
