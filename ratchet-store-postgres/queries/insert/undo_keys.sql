-- Takes back the keys of jobs that were not stored after all.
WITH undone AS (
    SELECT j.job_id
    FROM unnest(:job_ids::uuid[]) AS j (job_id)
    WHERE NOT EXISTS (SELECT FROM ratchet.scheduler_job s WHERE s.job_id = j.job_id)
),
ledger AS (
    DELETE FROM ratchet.scheduler_idempotency_key k USING undone u
    WHERE k.key_hash = ANY(:key_hashes::bytea[]) AND k.job_id = u.job_id
)
DELETE FROM ratchet.scheduler_business_key_reservation r USING undone u
WHERE r.business_key = ANY(:business_keys::text[]) AND r.owner_job_id = u.job_id
