DELETE FROM ratchet.scheduler_job_tag
WHERE job_id = :job_id AND tag IN (SELECT t.value FROM json_each(:tags) t);

SELECT EXISTS (SELECT 1 FROM ratchet.scheduler_job j WHERE j.job_id = :job_id) AS known
