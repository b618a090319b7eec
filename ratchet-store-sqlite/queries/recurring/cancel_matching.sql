-- Ends every live schedule that matches all that is given.
DELETE FROM temp.chosen;

INSERT INTO temp.chosen (job_id, now)
SELECT j.job_id, c.now
FROM (SELECT coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS now) c
CROSS JOIN ratchet.scheduler_job j
WHERE j.rec_status IS NOT NULL
  AND (:business_key IS NULL OR j.business_key = :business_key)
  AND (:tag IS NULL OR EXISTS (
      SELECT 1 FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id AND t.tag = :tag
  ))
  AND (:keep IS NULL OR j.business_key NOT IN (SELECT k.value FROM json_each(:keep) k))
  AND (:older_than_ms IS NULL OR j.created_at < c.now - :older_than_ms)
ORDER BY j.job_id;

UPDATE ratchet.scheduler_job AS j
SET terminal_status = 'CANCELED', rec_status = NULL, cancel_reason = :reason, version = min(j.version, 9223372036854775806) + 1,
    scheduled_time = j.created_at, terminated_at = c.now
FROM temp.chosen c
WHERE j.job_id = c.job_id;

DELETE FROM ratchet.scheduler_business_key_reservation
WHERE (business_key, owner_job_id) IN (
    SELECT j.business_key, j.job_id FROM temp.chosen c CROSS JOIN ratchet.scheduler_job j ON j.job_id = c.job_id
);

SELECT c.job_id FROM temp.chosen c ORDER BY c.place
