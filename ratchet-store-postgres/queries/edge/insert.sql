-- Stores edges and counts them on their parents, live or ended. The rows of the parents are held.
WITH given AS MATERIALIZED (
    SELECT g.*
    FROM unnest(
        :parents::uuid[], :children::uuid[], :conditions::text[], :expressions::text[], :priorities::int[]
    ) WITH ORDINALITY AS g (parent_id, child_id, condition_type, expression, priority, place)
),
edges AS (
    INSERT INTO ratchet.scheduler_job_edge (parent_id, child_id, condition_type, priority)
    SELECT g.parent_id, g.child_id, g.condition_type, g.priority FROM given g ORDER BY g.place
),
expressions AS (
    INSERT INTO ratchet.scheduler_workflow_condition (parent_id, child_id, expression)
    SELECT g.parent_id, g.child_id, g.expression::json FROM given g WHERE g.expression IS NOT NULL
),
counted AS MATERIALIZED (
    SELECT g.parent_id, count(*) AS edges FROM given g GROUP BY g.parent_id
),
live AS (
    UPDATE ratchet.scheduler_job_queue q
    SET edge_count = q.edge_count + c.edges
    FROM counted c
    WHERE q.job_id = ANY(ARRAY[c.parent_id])
)
UPDATE ratchet.scheduler_job j
SET edge_count = j.edge_count + c.edges
FROM counted c
WHERE j.job_id = ANY(ARRAY[c.parent_id]) AND j.terminal_status IS NOT NULL
