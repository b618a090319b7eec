INSERT INTO ratchet.scheduler_job_log (job_id, fence, ts, level, message)
SELECT unhex(g.value ->> 0), g.value ->> 1, c.now, g.value ->> 2, g.value ->> 3
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN jsonb_each(:[job_ids, fences, levels, messages]) g
ORDER BY g.key
