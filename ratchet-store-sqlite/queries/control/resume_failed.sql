-- A paused dead letter ends as it had ended: its end is still on its own row.
UPDATE ratchet.scheduler_job AS j
SET terminal_status = 'FAILED', version = min(q.version, 9223372036854775806) + 1,
    edge_count = q.edge_count, blocked_by = q.blocked_by,
    open_parents = q.open_parents
FROM ratchet.scheduler_job_queue q
WHERE j.job_id = :job_id AND q.job_id = :job_id;

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE business_key = (SELECT q.business_key FROM ratchet.scheduler_job_queue q WHERE q.job_id = :job_id)
  AND owner_job_id = :job_id;

DELETE FROM ratchet.scheduler_job_queue WHERE job_id = :job_id
