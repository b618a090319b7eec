WITH alerts AS (
    INSERT INTO ratchet.scheduler_dlq_alert (job_id, error_hash, fingerprint, alert_sent_at)
    SELECT g.job_id, g.error_hash, g.fingerprint, :now::timestamptz
    FROM unnest(:job_ids::uuid[], :error_hashes::text[], :fingerprints::text[])
        WITH ORDINALITY AS g (job_id, error_hash, fingerprint, place)
    ORDER BY g.place
)
UPDATE ratchet.scheduler_dlq_alert_group a
SET told_at = g.told_at, alert_count = g.alert_count
FROM unnest(:groups::text[], :told_at::timestamptz[], :counts::bigint[]) AS g (fingerprint, told_at, alert_count)
WHERE a.fingerprint = g.fingerprint
