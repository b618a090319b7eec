UPDATE ratchet.scheduler_lock
SET owner_node = NULL
WHERE lock_name = :lock_name AND owner_node = :owner AND term = :term
  AND expires_at > coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
