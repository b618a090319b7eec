WITH given AS MATERIALIZED (
    SELECT g.job_id, g.payload FROM unnest($1::uuid[], $2::text[]) AS g (job_id, payload)
),
cold AS (
    INSERT INTO probe_cold (job_id, created_at, priority, queue, target, method, payload)
    SELECT g.job_id, now(), 2, 'default', $3, $4, g.payload::json FROM given g
)
INSERT INTO probe_hot (job_id, scheduled_time, version, attempts, priority, queue, status)
SELECT g.job_id, now(), 1, 0, 2, 'default', 'PENDING' FROM given g
