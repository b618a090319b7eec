UPDATE ratchet.scheduler_job_queue AS q
SET progress = g.value ->> 2
FROM jsonb_each(:[job_ids, fences, progress]) g
WHERE q.job_id = unhex(g.value ->> 0) AND q.version = g.value ->> 1 AND q.status = 'RUNNING'
RETURNING job_id, version
