DELETE FROM ratchet.scheduler_node n
USING (SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now) c
WHERE n.lease_until < c.now - :retention_ms::bigint * interval '1 millisecond'
  AND NOT EXISTS (
      SELECT FROM ratchet.scheduler_job_queue q WHERE q.status = 'RUNNING' AND q.picked_by = n.node_id
  )
