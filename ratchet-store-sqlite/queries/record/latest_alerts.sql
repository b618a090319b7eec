SELECT a.job_id, a.error_hash, max(a.alert_sent_at) AS latest
FROM ratchet.scheduler_dlq_alert a
WHERE a.job_id IN (SELECT unhex(g.value) FROM json_each(:job_ids) g)
GROUP BY a.job_id, a.error_hash
