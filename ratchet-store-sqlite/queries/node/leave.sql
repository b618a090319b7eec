DELETE FROM ratchet.scheduler_node
WHERE node_id = :owner AND NOT EXISTS (
    SELECT 1 FROM ratchet.scheduler_job_queue q WHERE q.status = 'RUNNING' AND q.picked_by = :owner
)
