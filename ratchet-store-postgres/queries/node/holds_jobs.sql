SELECT EXISTS (
    SELECT FROM ratchet.scheduler_job_queue q WHERE q.status = 'RUNNING' AND q.picked_by = :owner::text
) AS holds_jobs
