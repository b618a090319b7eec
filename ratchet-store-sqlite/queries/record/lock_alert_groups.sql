-- Makes sure that there is a row for each fingerprint, and reads it.
INSERT INTO ratchet.scheduler_dlq_alert_group (fingerprint, told_at, alert_count)
SELECT g.value, 0, 0 FROM json_each(:fingerprints) g
WHERE true
ON CONFLICT DO NOTHING;

SELECT a.fingerprint, a.told_at, a.alert_count
FROM ratchet.scheduler_dlq_alert_group a
WHERE a.fingerprint IN (SELECT g.value FROM json_each(:fingerprints) g)
