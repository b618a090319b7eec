INSERT INTO ratchet.scheduler_resource_limit (resource_name, max_concurrent, retry_delay_ms, updated_at)
VALUES (
    :resource::text, :max_concurrent::bigint, :retry_delay_ms::bigint,
    coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
)
ON CONFLICT (resource_name) DO UPDATE
SET max_concurrent = excluded.max_concurrent, retry_delay_ms = excluded.retry_delay_ms, updated_at = excluded.updated_at
