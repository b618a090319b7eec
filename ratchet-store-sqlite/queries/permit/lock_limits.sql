SELECT l.resource_name, l.max_concurrent, l.retry_delay_ms
FROM ratchet.scheduler_resource_limit l
WHERE l.resource_name IN (SELECT g.value FROM json_each(:resources) g)
ORDER BY l.resource_name
