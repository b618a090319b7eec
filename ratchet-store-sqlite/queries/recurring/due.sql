SELECT v.*
FROM ratchet.vw_jobs v
WHERE v.rec_status = 'A' AND v.next_fire <= coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
ORDER BY v.next_fire, v.job_id
LIMIT :lim
