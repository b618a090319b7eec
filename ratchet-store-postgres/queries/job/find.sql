-- A look for each: where the server believes the tables to be empty, it would rather read all of them for one join.
-- (The condition always holds: see commit/settle.sql.)
SELECT g.place, v.*
FROM unnest(:job_ids::uuid[]) WITH ORDINALITY AS g (wanted, place)
CROSS JOIN LATERAL (SELECT * FROM ratchet.vw_jobs v WHERE v.job_id = g.wanted LIMIT 1) v
WHERE g.place + 0 = g.place
