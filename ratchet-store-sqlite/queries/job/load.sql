-- Jobs that are still held under the fence of their claim.
SELECT g.key + 1 AS place, v.*
FROM jsonb_each(:[job_ids, fences]) g
CROSS JOIN ratchet.vw_jobs v ON v.job_id = unhex(g.value ->> 0) AND v.version = g.value ->> 1
WHERE v.picked_by IS NOT NULL
