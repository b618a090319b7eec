-- The beats of these nodes, and of all that bear on whether they are dead.
SELECT
    n.node_id, n.beating_since, n.heartbeat_ts, n.beat_gap_ms, n.reaped,
    (extract(epoch FROM n.lease_until - n.heartbeat_ts) * 1000)::bigint AS lease_ms
FROM ratchet.scheduler_node n
WHERE n.node_id = ANY(:dead::text[])
   OR coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) - n.lease_until < (
       SELECT coalesce(max(x.lease_until - x.heartbeat_ts), interval '0') FROM ratchet.scheduler_node x
       WHERE x.node_id = ANY(:dead::text[])
   )
ORDER BY n.node_id
