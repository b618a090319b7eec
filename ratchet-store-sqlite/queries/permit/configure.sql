INSERT INTO ratchet.scheduler_resource_limit (resource_name, max_concurrent, retry_delay_ms, updated_at)
VALUES (:resource, :max_concurrent, :retry_delay_ms, coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)))
ON CONFLICT (resource_name) DO UPDATE
SET max_concurrent = excluded.max_concurrent, retry_delay_ms = excluded.retry_delay_ms, updated_at = excluded.updated_at
