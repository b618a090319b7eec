SELECT job_id, priority, queue, target, method, payload::text AS payload FROM probe_cold WHERE job_id = ANY($1)
