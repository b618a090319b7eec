WITH removed AS (
    DELETE FROM ratchet.scheduler_job_tag t WHERE t.job_id = :job_id::uuid AND t.tag = ANY(:tags::text[])
)
SELECT EXISTS (SELECT FROM ratchet.scheduler_job j WHERE j.job_id = :job_id::uuid) AS known
