-- After the clock went back: a lock that would last that much longer does not.
UPDATE ratchet.scheduler_lock l
SET expires_at = l.expires_at - :by_ms::bigint * interval '1 millisecond'
FROM (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
WHERE l.expires_at - c.now >= :by_ms::bigint * interval '1 millisecond'
  AND l.expires_at - c.now < 2 * :by_ms::bigint * interval '1 millisecond'
