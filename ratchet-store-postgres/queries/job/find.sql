-- The condition always holds: see commit/settle.sql.
SELECT g.place, v.*
FROM unnest(:job_ids::uuid[]) WITH ORDINALITY AS g (wanted, place)
JOIN ratchet.vw_jobs v ON v.job_id = g.wanted
WHERE g.place + 0 = g.place
