-- Moves jobs of dead owners to a live one. Locking the dead makes their claims that are under way finish first.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
alive AS MATERIALIZED (
    SELECT n.node_id
    FROM ratchet.scheduler_node n
    WHERE n.node_id = :owner::text AND NOT n.reaped AND n.lease_until > (SELECT c.now FROM clock c)
    FOR KEY SHARE
),
gone AS MATERIALIZED (
    SELECT n.node_id
    FROM ratchet.scheduler_node n
    WHERE n.node_id = ANY(:dead::text[]) AND n.node_id <> :owner::text
      AND (n.reaped OR n.lease_until <= (SELECT c.now FROM clock c)) AND EXISTS (SELECT FROM alive)
    ORDER BY n.node_id
    FOR UPDATE
),
-- An owner without a row in the list of nodes is as dead as one whose lease has run out.
dead AS MATERIALIZED (
    SELECT g.node_id FROM gone g
    UNION ALL
    SELECT d.node_id
    FROM unnest(:dead::text[]) AS d (node_id)
    WHERE EXISTS (SELECT FROM alive) AND NOT EXISTS (SELECT FROM ratchet.scheduler_node n WHERE n.node_id = d.node_id)
),
-- Waits for commits and cancels that are under way: what they leave behind is moved, what they end is not.
held AS MATERIALIZED (
    SELECT q.job_id, q.picked_by AS robbed
    FROM ratchet.scheduler_job_queue q
    WHERE q.status = 'RUNNING' AND q.picked_by IN (SELECT d.node_id FROM dead d)
    ORDER BY q.job_id
    LIMIT :lim::bigint
    FOR UPDATE
),
moved AS (
    UPDATE ratchet.scheduler_job_queue q
    SET picked_by = :owner::text, version = least(q.version, 9223372036854775806) + 1, updated_at = c.now
    FROM clock c
    WHERE q.job_id = ANY(ARRAY(SELECT h.job_id FROM held h))
    RETURNING
        q.job_id, q.version, q.queue, q.job_type, q.priority, q.scheduled_time, q.picked_at, q.attempts,
        q.crash_count, q.max_retries, q.timeout_ms, q.business_key, q.edge_count, q.cancel_requested,
        coalesce(q.expires_at <= c.now, false) AS expired
),
-- Only those of whom something was taken are fenced.
reaped AS (
    UPDATE ratchet.scheduler_node n
    SET reaped = true
    WHERE n.node_id IN (SELECT h.robbed FROM held h) AND NOT n.reaped
)
SELECT m.* FROM moved m ORDER BY m.job_id
