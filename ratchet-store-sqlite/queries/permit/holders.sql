SELECT p.resource_name, p.job_id
FROM ratchet.scheduler_resource_permit p
WHERE p.resource_name IN (SELECT g.value FROM json_each(:resources) g)
