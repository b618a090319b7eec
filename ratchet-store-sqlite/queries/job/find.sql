SELECT g.key + 1 AS place, v.*
FROM json_each(:job_ids) g
CROSS JOIN ratchet.vw_jobs v ON v.job_id = unhex(g.value)
