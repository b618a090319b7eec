-- Stores edges and counts them on their parents, live or ended.
INSERT INTO ratchet.scheduler_job_edge (parent_id, child_id, condition_type, priority)
SELECT unhex(g.value ->> 0), unhex(g.value ->> 1), g.value ->> 2, g.value ->> 4
FROM jsonb_each(:[parents, children, conditions, expressions, priorities]) g
ORDER BY g.key;

INSERT INTO ratchet.scheduler_workflow_condition (parent_id, child_id, expression)
SELECT unhex(g.value ->> 0), unhex(g.value ->> 1), g.value ->> 2
FROM jsonb_each(:[parents, children, expressions]) g
WHERE g.value ->> 2 IS NOT NULL;

UPDATE ratchet.scheduler_job_queue AS q
SET edge_count = q.edge_count + c.edges
FROM (SELECT unhex(g.value) AS parent_id, count(*) AS edges FROM json_each(:parents) g GROUP BY 1) c
WHERE q.job_id = c.parent_id;

UPDATE ratchet.scheduler_job AS j
SET edge_count = j.edge_count + c.edges
FROM (SELECT unhex(g.value) AS parent_id, count(*) AS edges FROM json_each(:parents) g GROUP BY 1) c
WHERE j.job_id = c.parent_id AND j.terminal_status IS NOT NULL
