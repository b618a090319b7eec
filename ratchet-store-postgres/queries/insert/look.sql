-- What speaks against jobs: an id, an idempotency key or a business key that is there already.
SELECT g.job_id, s.job_id IS NOT NULL AS known, k.job_id AS first_id, r.owner_job_id AS holder
FROM unnest(:job_ids::uuid[], :key_hashes::bytea[], :business_keys::text[])
    WITH ORDINALITY AS g (job_id, key_hash, business_key, place)
LEFT JOIN ratchet.scheduler_job s ON s.job_id = g.job_id
LEFT JOIN ratchet.scheduler_idempotency_key k ON k.key_hash = g.key_hash
LEFT JOIN ratchet.scheduler_business_key_reservation r ON r.business_key = g.business_key
ORDER BY g.place
