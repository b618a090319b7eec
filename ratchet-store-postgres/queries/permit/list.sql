SELECT
    l.resource_name, l.max_concurrent, l.retry_delay_ms,
    ARRAY(
        SELECT p.job_id FROM ratchet.scheduler_resource_permit p
        WHERE p.resource_name = l.resource_name ORDER BY p.job_id
    ) AS holders
FROM ratchet.scheduler_resource_limit l
ORDER BY l.resource_name
