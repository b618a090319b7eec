UPDATE ratchet.scheduler_job_queue q
SET progress = g.progress::json
FROM unnest(:job_ids::uuid[], :fences::bigint[], :progress::text[]) AS g (job_id, fence, progress)
WHERE q.job_id = ANY(ARRAY[g.job_id]) AND q.version = g.fence AND q.status = 'RUNNING'
RETURNING q.job_id, q.version
