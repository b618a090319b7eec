SELECT
    l.resource_name, l.max_concurrent, l.retry_delay_ms,
    (
        SELECT json_group_array(lower(hex(p.job_id)) ORDER BY p.job_id) FROM ratchet.scheduler_resource_permit p
        WHERE p.resource_name = l.resource_name
    ) AS holders
FROM ratchet.scheduler_resource_limit l
ORDER BY l.resource_name
