-- Lowers what jobs wait for. Their queue rows are held; an ended child keeps count too, for the day it is revived.
WITH given AS MATERIALIZED (
    SELECT g.*
    FROM unnest(:children::uuid[], :decided::bigint[], :satisfied::bigint[]) AS g (child_id, decided, satisfied)
),
cold AS (
    UPDATE ratchet.scheduler_job j
    SET open_parents = greatest(greatest(j.open_parents, 0) - g.decided, 0),
        blocked_by = greatest(greatest(j.blocked_by, 0) - g.satisfied, 0)
    FROM given g
    WHERE j.job_id = ANY(ARRAY[g.child_id]) AND j.terminal_status IS NOT NULL
)
UPDATE ratchet.scheduler_job_queue q
SET open_parents = greatest(greatest(q.open_parents, 0) - g.decided, 0),
    blocked_by = greatest(greatest(q.blocked_by, 0) - g.satisfied, 0),
    scheduled_time = CASE
        WHEN q.blocked_by BETWEEN 1 AND g.satisfied THEN greatest(q.scheduled_time, :now::timestamptz)
        ELSE q.scheduled_time
    END,
    updated_at = :now::timestamptz
FROM given g JOIN ratchet.scheduler_job_queue before ON before.job_id = ANY(ARRAY[g.child_id])
WHERE q.job_id = ANY(ARRAY[g.child_id])
RETURNING
    q.job_id,
    before.blocked_by > 0 AND q.blocked_by = 0 AS released,
    q.open_parents < q.blocked_by AS hopeless
