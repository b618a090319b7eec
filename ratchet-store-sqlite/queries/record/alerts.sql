SELECT a.job_id, a.error_hash, a.fingerprint, a.alert_sent_at
FROM ratchet.scheduler_dlq_alert a
WHERE a.job_id = :job_id
ORDER BY a.alert_id
