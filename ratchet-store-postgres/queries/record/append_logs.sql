INSERT INTO ratchet.scheduler_job_log (job_id, fence, ts, level, message)
SELECT g.job_id, g.fence, c.now, g.level, g.message
FROM unnest(:job_ids::uuid[], :fences::bigint[], :levels::text[], :messages::text[])
    WITH ORDINALITY AS g (job_id, fence, level, message, place)
CROSS JOIN (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
ORDER BY g.place
