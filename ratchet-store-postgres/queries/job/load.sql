-- Jobs that are still held under the fence of their claim.
SELECT g.place, v.*
FROM unnest(:job_ids::uuid[], :fences::bigint[]) WITH ORDINALITY AS g (wanted, fence, place)
JOIN ratchet.vw_jobs v ON v.job_id = g.wanted AND v.version = g.fence
WHERE v.picked_by IS NOT NULL
