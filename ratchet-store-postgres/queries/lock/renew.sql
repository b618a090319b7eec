UPDATE ratchet.scheduler_lock l
SET locked_at = c.now,
    expires_at = least(c.now + :ttl_ms::bigint * interval '1 millisecond', '9998-12-31 23:59:59.999+00')
FROM (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
WHERE l.lock_name = :lock_name::text AND l.owner_node = :owner::text AND l.term = :term::bigint AND l.expires_at > c.now
  AND 2 * round(1000 * date_part('epoch', l.locked_at)) - round(1000 * date_part('epoch', l.expires_at))
      <= round(1000 * date_part('epoch', c.now))
