-- How many permits of resources are in use, and a row for each of them that one of these jobs has.
SELECT p.resource_name, NULL AS job_id, count(*) AS permits
FROM ratchet.scheduler_resource_permit p
WHERE p.resource_name IN (SELECT g.value FROM json_each(:resources) g)
GROUP BY p.resource_name
UNION ALL
SELECT p.resource_name, p.job_id, 1
FROM ratchet.scheduler_resource_permit p
WHERE p.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g)
