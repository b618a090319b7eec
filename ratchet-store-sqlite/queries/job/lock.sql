-- Queue rows in the order of their ids. The transaction is the one writer, so nothing more is locked.
SELECT
    q.job_id, q.status, q.version, q.picked_by, q.cancel_requested, q.edge_count, q.batch_id,
    q.paused_from_status
FROM ratchet.scheduler_job_queue q
WHERE q.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g)
ORDER BY q.job_id
