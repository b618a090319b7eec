-- The beats of these nodes, and of all that bear on whether they are dead.
SELECT n.node_id, n.beating_since, n.heartbeat_ts, n.beat_gap_ms, n.lease_until - n.heartbeat_ts AS lease_ms, n.reaped
FROM ratchet.scheduler_node n
WHERE n.node_id IN (SELECT d.value FROM json_each(:dead) d)
   OR n.lease_until > coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) - (
       SELECT coalesce(max(x.lease_until - x.heartbeat_ts), 0) FROM ratchet.scheduler_node x
       WHERE x.node_id IN (SELECT d.value FROM json_each(:dead) d)
   )
ORDER BY n.node_id
