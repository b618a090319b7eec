SELECT a.job_id, a.error_hash, max(a.alert_sent_at) AS latest
FROM ratchet.scheduler_dlq_alert a
WHERE a.job_id = ANY(:job_ids::uuid[])
GROUP BY a.job_id, a.error_hash
