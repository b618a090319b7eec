-- Locks queue rows, in the order of their ids as everybody does.
SELECT
    q.job_id, q.status, q.version, q.picked_by, q.cancel_requested, q.edge_count, q.batch_id,
    q.paused_from_status
FROM ratchet.scheduler_job_queue q
WHERE q.job_id = ANY(:job_ids::uuid[])
ORDER BY q.job_id
FOR UPDATE
