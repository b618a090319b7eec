INSERT INTO ratchet.scheduler_node (
    node_id, label, node_version, methods, queues, started_at, heartbeat_ts, beating_since, lease_until
)
SELECT
    :owner::text, :label::text, :version::text, :methods::text[], :queues::text[], c.now, c.now, c.now,
    least(c.now + :lease_ms::bigint * interval '1 millisecond', '9998-12-31 23:59:59.999+00')
FROM (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
ON CONFLICT DO NOTHING
