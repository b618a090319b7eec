-- After the clock went back: a beat that lies ahead counts as made now. Whoever is beating does so by itself.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
chosen AS MATERIALIZED (
    SELECT n.node_id FROM ratchet.scheduler_node n CROSS JOIN clock c
    WHERE n.heartbeat_ts > c.now
    FOR UPDATE OF n SKIP LOCKED
)
UPDATE ratchet.scheduler_node n
SET lease_until = c.now + (n.lease_until - n.heartbeat_ts), heartbeat_ts = c.now, beating_since = c.now
FROM clock c, chosen h
WHERE n.node_id = h.node_id
