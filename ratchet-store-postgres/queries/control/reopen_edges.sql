-- Refused edges are open again, and their children, live or ended, have that many more open parents.
WITH given AS MATERIALIZED (
    SELECT g.parent_id, g.child_id FROM unnest(:parents::uuid[], :children::uuid[]) AS g (parent_id, child_id)
),
edges AS (
    UPDATE ratchet.scheduler_job_edge e
    SET state = 'OPEN'
    FROM given g
    WHERE e.parent_id = g.parent_id AND e.child_id = g.child_id
),
counted AS MATERIALIZED (
    SELECT g.child_id, count(*) AS edges FROM given g GROUP BY g.child_id
),
live AS (
    UPDATE ratchet.scheduler_job_queue q
    SET open_parents = least(q.open_parents, 4294967295) + c.edges
    FROM counted c
    WHERE q.job_id = ANY(ARRAY[c.child_id])
)
UPDATE ratchet.scheduler_job j
SET open_parents = least(j.open_parents, 4294967295) + c.edges
FROM counted c
WHERE j.job_id = ANY(ARRAY[c.child_id]) AND j.terminal_status IS NOT NULL
