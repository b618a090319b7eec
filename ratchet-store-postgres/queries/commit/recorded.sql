-- Outcomes that this owner recorded before.
SELECT e.job_id, e.fence
FROM unnest(:job_ids::uuid[], :fences::bigint[]) AS g (job_id, fence)
JOIN ratchet.scheduler_job_execution e ON e.job_id = g.job_id AND e.fence = g.fence
WHERE e.node_id = :owner::text
