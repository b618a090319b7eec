-- Readers see CANCELED from now on; the owner keeps the job, and its fence, until the body ends.
UPDATE ratchet.scheduler_job_queue q
SET cancel_requested = true, cancel_reason = :reason::text, updated_at = :now::timestamptz
WHERE q.job_id = ANY(:job_ids::uuid[])
