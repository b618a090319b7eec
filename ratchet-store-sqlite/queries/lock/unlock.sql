UPDATE ratchet.scheduler_lock
SET owner_node = NULL
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
WHERE lock_name = :lock_name AND owner_node = :owner AND term = :term AND expires_at > c.now
  AND locked_at - c.now <= expires_at - locked_at
