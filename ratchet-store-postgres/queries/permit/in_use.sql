-- How many permits of resources are in use, and a row for each of them that one of these jobs has.
SELECT p.resource_name, NULL::uuid AS job_id, count(*) AS permits
FROM ratchet.scheduler_resource_permit p
WHERE p.resource_name = ANY(:resources::text[])
GROUP BY p.resource_name
UNION ALL
SELECT p.resource_name, p.job_id, 1
FROM ratchet.scheduler_resource_permit p
WHERE p.job_id = ANY(:job_ids::uuid[])
