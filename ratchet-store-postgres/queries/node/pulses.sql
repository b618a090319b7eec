-- The beats of these nodes, and of all that bear on whether they are dead.
--
-- Times that nobody wrote are brought into the calendar first: infinity minus infinity is an error.
WITH node AS MATERIALIZED (
    SELECT
        n.*,
        greatest(least(n.lease_until, '9999-12-31 00:00+00'), '0001-01-01 00:00+00') AS ends,
        greatest(least(n.heartbeat_ts, '9999-12-31 00:00+00'), '0001-01-01 00:00+00') AS beat
    FROM ratchet.scheduler_node n
)
SELECT
    n.node_id, n.beating_since, n.heartbeat_ts, n.beat_gap_ms, n.reaped,
    (extract(epoch FROM n.ends - n.beat) * 1000)::bigint AS lease_ms
FROM node n
WHERE n.node_id = ANY(:dead::text[])
   OR coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) - n.ends < (
       SELECT coalesce(max(x.ends - x.beat), interval '0') FROM node x WHERE x.node_id = ANY(:dead::text[])
   )
ORDER BY n.node_id
