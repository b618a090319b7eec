DELETE FROM ratchet.scheduler_node AS n
WHERE n.lease_until < coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) - :retention_ms
  AND NOT EXISTS (
      SELECT 1 FROM ratchet.scheduler_job_queue q WHERE q.status = 'RUNNING' AND q.picked_by = n.node_id
  )
