-- Takes a lock that is free, has run out or is one's own; no row comes back if another holds it. A lock that lies ahead of
-- the present by more than its time to live has run out: the clock went back. So has one that would end beyond the calendar: its
-- end was written by hand. Compared in milliseconds, since times that were damaged cannot be subtracted.
INSERT INTO ratchet.scheduler_lock AS l (lock_name, owner_node, term, locked_at, expires_at)
SELECT
    :lock_name::text, :owner::text, 1, c.now,
    least(c.now + :ttl_ms::bigint * interval '1 millisecond', '9998-12-31 23:59:59.999+00')
FROM (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
ON CONFLICT (lock_name) DO UPDATE
SET term = CASE
        WHEN l.owner_node = excluded.owner_node AND l.expires_at > excluded.locked_at
            AND 2 * round(1000 * date_part('epoch', l.locked_at)) - round(1000 * date_part('epoch', l.expires_at))
                <= round(1000 * date_part('epoch', excluded.locked_at)) THEN l.term
        ELSE least(l.term, 9223372036854775806) + 1
    END,
    owner_node = excluded.owner_node,
    locked_at = excluded.locked_at,
    expires_at = excluded.expires_at
WHERE l.owner_node IS NULL OR l.owner_node = excluded.owner_node OR l.expires_at <= excluded.locked_at
    OR NOT (2 * round(1000 * date_part('epoch', l.locked_at)) - round(1000 * date_part('epoch', l.expires_at))
        <= round(1000 * date_part('epoch', excluded.locked_at)))
    OR l.expires_at > '9998-12-31 23:59:59.999+00'
RETURNING l.term
