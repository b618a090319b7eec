-- After the clock went back: a beat that lies ahead counts as made now.
UPDATE ratchet.scheduler_node
SET lease_until = c.now + lease_until - heartbeat_ts, heartbeat_ts = c.now, beating_since = c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
WHERE heartbeat_ts > c.now
