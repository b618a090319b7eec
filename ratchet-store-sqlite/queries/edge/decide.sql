-- Decides open edges; answers which of those given were open.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (place)
SELECT g.key + 1
FROM jsonb_each(:[parents, children, states]) g
CROSS JOIN ratchet.scheduler_job_edge e
    ON e.parent_id = unhex(g.value ->> 0) AND e.child_id = unhex(g.value ->> 1)
WHERE e.state = 'OPEN';

UPDATE ratchet.scheduler_job_edge AS e
SET state = g.value ->> 2
FROM jsonb_each(:[parents, children, states]) g
WHERE e.parent_id = unhex(g.value ->> 0) AND e.child_id = unhex(g.value ->> 1) AND e.state = 'OPEN';

SELECT c.place FROM temp.chosen c ORDER BY c.place
