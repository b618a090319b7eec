-- What speaks against jobs: an id, an idempotency key or a business key that is there already.
SELECT
    unhex(g.value ->> 0) AS job_id,
    EXISTS (SELECT 1 FROM ratchet.scheduler_job s WHERE s.job_id = unhex(g.value ->> 0)) AS known,
    (
        SELECT k.job_id FROM ratchet.scheduler_idempotency_key k WHERE k.key_hash = unhex(g.value ->> 1)
    ) AS first_id,
    (
        SELECT r.owner_job_id FROM ratchet.scheduler_business_key_reservation r WHERE r.business_key = g.value ->> 2
    ) AS holder
FROM jsonb_each(:[job_ids, key_hashes, business_keys]) g
ORDER BY g.key
