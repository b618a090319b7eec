-- Takes a lock that is free, has run out or is one's own; no row comes back if another holds it. A lock that lies ahead of
-- the present by more than its time to live has run out: the clock went back. So has one that would end beyond the calendar: its
-- end was written by hand.
INSERT INTO ratchet.scheduler_lock AS l (lock_name, owner_node, term, locked_at, expires_at)
SELECT :lock_name, :owner, 1, c.now, min(c.now + :ttl_ms, 253370764799999)
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
WHERE true
ON CONFLICT (lock_name) DO UPDATE
SET term = CASE
        WHEN l.owner_node = excluded.owner_node AND l.expires_at > excluded.locked_at
            AND l.locked_at - excluded.locked_at <= l.expires_at - l.locked_at THEN l.term
        ELSE min(l.term, 9223372036854775806) + 1
    END,
    owner_node = excluded.owner_node,
    locked_at = excluded.locked_at,
    expires_at = excluded.expires_at
WHERE l.owner_node IS NULL OR l.owner_node = excluded.owner_node OR l.expires_at <= excluded.locked_at
    OR l.locked_at - excluded.locked_at > l.expires_at - l.locked_at OR l.expires_at > 253370764799999
RETURNING term
