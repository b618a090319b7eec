INSERT INTO ratchet.scheduler_resource_permit (resource_name, job_id, node_id, acquired_at)
SELECT
    g.resource_name, g.job_id, :owner::text,
    coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
FROM unnest(:resources::text[], :job_ids::uuid[]) AS g (resource_name, job_id)
ON CONFLICT DO NOTHING
