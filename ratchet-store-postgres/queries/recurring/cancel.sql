-- Ends schedules, paused or not. Their rows are held.
WITH ended AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = 'CANCELED', rec_status = NULL, cancel_reason = :reason::text, version = least(j.version, 9223372036854775806) + 1,
        scheduled_time = j.created_at, terminated_at = :now::timestamptz
    WHERE j.job_id = ANY(:job_ids::uuid[]) AND j.rec_status IS NOT NULL
    RETURNING j.job_id, j.business_key
)
DELETE FROM ratchet.scheduler_business_key_reservation r USING ended e
WHERE r.business_key = e.business_key AND r.owner_job_id = e.job_id
