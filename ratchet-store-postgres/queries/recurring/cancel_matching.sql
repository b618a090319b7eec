-- Ends every live schedule that matches all that is given.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
),
ended AS (
    UPDATE ratchet.scheduler_job j
    SET terminal_status = 'CANCELED', rec_status = NULL, cancel_reason = :reason::text, version = least(j.version, 9223372036854775806) + 1,
        scheduled_time = j.created_at, terminated_at = c.now
    FROM clock c
    WHERE j.rec_status IS NOT NULL
      AND (:business_key::text IS NULL OR j.business_key = :business_key::text)
      AND (:tag::text IS NULL OR EXISTS (
          SELECT FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id AND t.tag = :tag::text
      ))
      AND j.business_key <> ALL(:keep::text[])
      AND (:older_than_ms::bigint IS NULL
          OR j.created_at < c.now - :older_than_ms::bigint * interval '1 millisecond')
    RETURNING j.job_id, j.business_key
),
keys AS (
    DELETE FROM ratchet.scheduler_business_key_reservation r USING ended e
    WHERE r.business_key = e.business_key AND r.owner_job_id = e.job_id
)
SELECT e.job_id FROM ended e ORDER BY e.job_id
