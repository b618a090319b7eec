SELECT v.*
FROM ratchet.vw_jobs v
WHERE v.rec_status = 'A'
  AND v.next_fire <= coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp()))
ORDER BY v.next_fire, v.job_id
LIMIT :lim::bigint
