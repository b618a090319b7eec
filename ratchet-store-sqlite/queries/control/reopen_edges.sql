-- Refused edges are open again, and their children, live or ended, have that many more open parents.
UPDATE ratchet.scheduler_job_edge AS e
SET state = 'OPEN'
FROM jsonb_each(:[parents, children]) g
WHERE e.parent_id = unhex(g.value ->> 0) AND e.child_id = unhex(g.value ->> 1);

UPDATE ratchet.scheduler_job_queue AS q
SET open_parents = q.open_parents + c.edges
FROM (
    SELECT unhex(g.value ->> 1) AS child_id, count(*) AS edges FROM jsonb_each(:[parents, children]) g GROUP BY 1
) c
WHERE q.job_id = c.child_id;

UPDATE ratchet.scheduler_job AS j
SET open_parents = j.open_parents + c.edges
FROM (
    SELECT unhex(g.value ->> 1) AS child_id, count(*) AS edges FROM jsonb_each(:[parents, children]) g GROUP BY 1
) c
WHERE j.job_id = c.child_id AND j.terminal_status IS NOT NULL
