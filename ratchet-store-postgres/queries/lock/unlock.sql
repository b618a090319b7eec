UPDATE ratchet.scheduler_lock l
SET owner_node = NULL
FROM (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
WHERE l.lock_name = :lock_name::text AND l.owner_node = :owner::text AND l.term = :term::bigint AND l.expires_at > c.now
  AND 2 * round(1000 * date_part('epoch', l.locked_at)) - round(1000 * date_part('epoch', l.expires_at))
      <= round(1000 * date_part('epoch', c.now))
