-- The row of the job is locked against its removal, and tells whether it exists.
WITH job AS MATERIALIZED (
    SELECT j.job_id FROM ratchet.scheduler_job j WHERE j.job_id = :job_id::uuid FOR KEY SHARE
),
added AS (
    INSERT INTO ratchet.scheduler_job_tag (job_id, tag)
    SELECT j.job_id, t.tag
    FROM job j CROSS JOIN unnest(:tags::text[]) WITH ORDINALITY AS t (tag, place)
    ORDER BY t.place
    ON CONFLICT DO NOTHING
)
SELECT EXISTS (SELECT FROM job) AS known
