-- Reserves the keys of ended jobs again; answers those that did not get theirs. Of two that want the same key, the one
-- that was named first gets it.
INSERT INTO ratchet.scheduler_business_key_reservation (business_key, owner_job_id, owner_table, reserved_at)
SELECT j.business_key, j.job_id, 'QUEUE', :now
FROM json_each(:job_ids) g CROSS JOIN ratchet.scheduler_job j ON j.job_id = unhex(g.value)
WHERE j.business_key IS NOT NULL
ORDER BY g.key
ON CONFLICT DO NOTHING;

SELECT j.job_id, j.business_key
FROM ratchet.scheduler_job j
WHERE j.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g) AND j.business_key IS NOT NULL
  AND NOT EXISTS (
      SELECT 1
      FROM ratchet.scheduler_business_key_reservation r
      WHERE r.business_key = j.business_key AND r.owner_job_id = j.job_id
  )
