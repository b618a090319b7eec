-- Outcomes that this owner recorded before.
SELECT e.job_id, e.fence
FROM jsonb_each(:[job_ids, fences]) g
CROSS JOIN ratchet.scheduler_job_execution e ON e.job_id = unhex(g.value ->> 0) AND e.fence = g.value ->> 1
WHERE e.node_id = :owner
