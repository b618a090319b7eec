-- Removes jobs with all that hangs on them. They are locked, so nothing is added meanwhile; and this statement began after
-- that, so it sees what was added before.
WITH executions AS (DELETE FROM ratchet.scheduler_job_execution x WHERE x.job_id = ANY(:job_ids::uuid[])),
logs AS (DELETE FROM ratchet.scheduler_job_log x WHERE x.job_id = ANY(:job_ids::uuid[])),
tags AS (DELETE FROM ratchet.scheduler_job_tag x WHERE x.job_id = ANY(:job_ids::uuid[])),
edges_from AS (DELETE FROM ratchet.scheduler_job_edge x WHERE x.parent_id = ANY(:job_ids::uuid[])),
edges_to AS (DELETE FROM ratchet.scheduler_job_edge x WHERE x.child_id = ANY(:job_ids::uuid[])),
batches AS (DELETE FROM ratchet.scheduler_batch x WHERE x.batch_id = ANY(:job_ids::uuid[])),
alerts AS (DELETE FROM ratchet.scheduler_dlq_alert x WHERE x.job_id = ANY(:job_ids::uuid[]))
DELETE FROM ratchet.scheduler_job j WHERE j.job_id = ANY(:job_ids::uuid[])
