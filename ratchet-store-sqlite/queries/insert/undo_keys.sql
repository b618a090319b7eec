-- Takes back the keys of jobs that were not stored after all.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id)
SELECT unhex(g.value)
FROM json_each(:job_ids) g
WHERE NOT EXISTS (SELECT 1 FROM ratchet.scheduler_job s WHERE s.job_id = unhex(g.value));

DELETE FROM ratchet.scheduler_idempotency_key
WHERE key_hash IN (SELECT unhex(g.value) FROM json_each(:key_hashes) g)
  AND job_id IN (SELECT c.job_id FROM temp.chosen c);

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE business_key IN (SELECT g.value FROM json_each(:business_keys) g)
  AND owner_job_id IN (SELECT c.job_id FROM temp.chosen c)
