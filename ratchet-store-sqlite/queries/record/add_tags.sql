INSERT INTO ratchet.scheduler_job_tag (job_id, tag, place)
SELECT
    j.job_id, t.value,
    t.key + coalesce((SELECT 1 + max(o.place) FROM ratchet.scheduler_job_tag o WHERE o.job_id = j.job_id), 0)
FROM ratchet.scheduler_job j CROSS JOIN json_each(:tags) t
WHERE j.job_id = :job_id
ON CONFLICT DO NOTHING;

SELECT EXISTS (SELECT 1 FROM ratchet.scheduler_job j WHERE j.job_id = :job_id) AS known
