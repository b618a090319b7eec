-- A paused dead letter ends as it had ended: its end is still on its own row.
WITH gone AS (
    DELETE FROM ratchet.scheduler_job_queue q WHERE q.job_id = :job_id::uuid RETURNING q.*
),
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation r USING gone g
    WHERE r.business_key = g.business_key AND r.owner_job_id = g.job_id
)
UPDATE ratchet.scheduler_job j
SET terminal_status = 'FAILED', version = least(g.version, 9223372036854775806) + 1,
    edge_count = g.edge_count, blocked_by = g.blocked_by,
    open_parents = g.open_parents
FROM gone g
WHERE j.job_id = ANY(ARRAY[g.job_id])
