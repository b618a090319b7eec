INSERT INTO ratchet.scheduler_dlq_alert (job_id, error_hash, fingerprint, alert_sent_at)
SELECT unhex(g.value ->> 0), g.value ->> 1, g.value ->> 2, :now
FROM jsonb_each(:[job_ids, error_hashes, fingerprints]) g
ORDER BY g.key;

UPDATE ratchet.scheduler_dlq_alert_group AS a
SET told_at = g.value ->> 1, alert_count = g.value ->> 2
FROM jsonb_each(:[groups, told_at, counts]) g
WHERE a.fingerprint = g.value ->> 0
