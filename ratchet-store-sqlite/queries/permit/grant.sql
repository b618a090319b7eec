INSERT INTO ratchet.scheduler_resource_permit (resource_name, job_id, node_id, acquired_at)
SELECT g.value ->> 0, unhex(g.value ->> 1), :owner, coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
FROM jsonb_each(:[resources, job_ids]) g
WHERE true
ON CONFLICT DO NOTHING
