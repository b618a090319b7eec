-- Makes sure that there is a row for each fingerprint, and locks it: whoever records a like error waits its turn.
WITH given AS MATERIALIZED (
    SELECT DISTINCT g.fingerprint FROM unnest(:fingerprints::text[]) AS g (fingerprint)
)
INSERT INTO ratchet.scheduler_dlq_alert_group AS a (fingerprint, told_at, alert_count)
SELECT g.fingerprint, '1970-01-01 00:00:00+00', 0 FROM given g ORDER BY g.fingerprint
ON CONFLICT (fingerprint) DO UPDATE SET alert_count = a.alert_count
RETURNING a.fingerprint, a.told_at, a.alert_count
