DELETE FROM ratchet.scheduler_node n
WHERE n.node_id = :owner::text AND NOT EXISTS (
    SELECT FROM ratchet.scheduler_job_queue q WHERE q.status = 'RUNNING' AND q.picked_by = n.node_id
)
