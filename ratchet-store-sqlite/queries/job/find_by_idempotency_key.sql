SELECT k.job_id FROM ratchet.scheduler_idempotency_key k WHERE k.key_hash = :key_hash
