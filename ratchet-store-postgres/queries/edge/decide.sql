-- Decides open edges and locks the queue rows of their children, in the order of their ids.
WITH given AS MATERIALIZED (
    SELECT g.*
    FROM unnest(:parents::uuid[], :children::uuid[], :states::text[])
        WITH ORDINALITY AS g (parent_id, child_id, state, place)
),
decided AS (
    UPDATE ratchet.scheduler_job_edge e
    SET state = g.state
    FROM given g
    WHERE e.parent_id = g.parent_id AND e.child_id = g.child_id AND e.state = 'OPEN'
    RETURNING e.child_id, g.place
),
held AS MATERIALIZED (
    SELECT q.job_id
    FROM ratchet.scheduler_job_queue q
    WHERE q.job_id IN (SELECT d.child_id FROM decided d)
    ORDER BY q.job_id
    FOR UPDATE
)
SELECT d.place FROM decided d LEFT JOIN held h ON h.job_id = d.child_id ORDER BY d.place
