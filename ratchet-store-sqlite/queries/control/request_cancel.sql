-- Readers see CANCELED from now on; the owner keeps the job, and its fence, until the body ends.
UPDATE ratchet.scheduler_job_queue
SET cancel_requested = 1, cancel_reason = :reason, updated_at = :now
WHERE job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g)
