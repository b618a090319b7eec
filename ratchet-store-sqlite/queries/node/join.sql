INSERT INTO ratchet.scheduler_node (
    node_id, label, node_version, methods, queues, started_at, heartbeat_ts, beating_since, lease_until
)
SELECT :owner, :label, :version, :methods, :queues, c.now, c.now, c.now, min(c.now + :lease_ms, 253370764799999)
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
WHERE true
ON CONFLICT DO NOTHING
