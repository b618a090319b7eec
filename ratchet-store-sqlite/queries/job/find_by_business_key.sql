SELECT r.owner_job_id AS job_id
FROM ratchet.scheduler_business_key_reservation r
WHERE r.business_key = :business_key
