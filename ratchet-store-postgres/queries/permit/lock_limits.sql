-- Locks the limits of resources: whoever asks for a permit of one waits its turn.
SELECT l.resource_name, l.max_concurrent, l.retry_delay_ms
FROM ratchet.scheduler_resource_limit l
WHERE l.resource_name = ANY(:resources::text[])
ORDER BY l.resource_name
FOR UPDATE
