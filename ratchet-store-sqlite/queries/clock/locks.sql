-- After the clock went back: a lock that would last that much longer does not.
UPDATE ratchet.scheduler_lock
SET expires_at = expires_at - :by_ms
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
WHERE expires_at - c.now >= :by_ms AND expires_at - c.now < 2 * :by_ms
