-- Lowers what jobs wait for; an ended child keeps count too, for the day it is revived.
DELETE FROM temp.settled_child;

INSERT INTO temp.settled_child (job_id, released, hopeless)
SELECT
    q.job_id, q.blocked_by > 0 AND q.blocked_by <= g.value ->> 2,
    max(q.open_parents - (g.value ->> 1), 0) < max(q.blocked_by - (g.value ->> 2), 0)
FROM jsonb_each(:[children, decided, satisfied]) g
CROSS JOIN ratchet.scheduler_job_queue q ON q.job_id = unhex(g.value ->> 0);

UPDATE ratchet.scheduler_job AS j
SET open_parents = max(j.open_parents - (g.value ->> 1), 0), blocked_by = max(j.blocked_by - (g.value ->> 2), 0)
FROM jsonb_each(:[children, decided, satisfied]) g
WHERE j.job_id = unhex(g.value ->> 0) AND j.terminal_status IS NOT NULL;

UPDATE ratchet.scheduler_job_queue AS q
SET open_parents = max(q.open_parents - (g.value ->> 1), 0),
    blocked_by = max(q.blocked_by - (g.value ->> 2), 0),
    scheduled_time = CASE
        WHEN q.blocked_by BETWEEN 1 AND g.value ->> 2 THEN max(q.scheduled_time, :now)
        ELSE q.scheduled_time
    END,
    updated_at = :now
FROM jsonb_each(:[children, decided, satisfied]) g
WHERE q.job_id = unhex(g.value ->> 0);

SELECT s.job_id, s.released, s.hopeless FROM temp.settled_child s
