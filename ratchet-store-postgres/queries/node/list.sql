SELECT
    n.node_id, n.label, n.node_version, n.methods, n.queues, n.started_at, n.heartbeat_ts, n.beating_since, n.beat_gap_ms,
    n.lease_until, n.reaped, n.skew_ms, n.running, n.slots, n.draining
FROM ratchet.scheduler_node n
ORDER BY n.started_at, n.node_id
