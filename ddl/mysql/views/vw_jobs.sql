-- Operator views for MySQL and MariaDB: the tables with ids as people write them. Optional; no part of the program uses
-- them. Run it again at any time, also after a migration.
--
-- Names are qualified by the database `ratchet`: for another one, replace `ratchet.`.
--
-- The text of an id is made for each row, so no index knows it. To find one job among many, compare the raw column:
--   SELECT * FROM ratchet.vw_readable_jobs WHERE raw_job_id = UNHEX(REPLACE('0190163d-8694-739b-aea5-966c26f8ad91', '-', ''));

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_jobs AS
SELECT
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(v.job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS job_id,
    v.status, v.job_type, v.queue, v.priority, v.target, v.method, v.scheduled_time, v.attempts, v.max_retries,
    v.crash_count, v.picked_by, v.picked_at, v.parked_on, v.last_error, v.cancel_reason, v.cancel_requested, v.paused_from_status,
    v.blocked_by, v.open_parents, v.edge_count, v.version, v.progress, v.tags, v.business_key, v.idempotency_key,
    v.resource_name, v.caller_principal, v.trace_context,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(v.batch_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS batch_id,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(v.depends_on), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS depends_on,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(v.superseded_by), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS superseded_by,
    v.created_at, v.expires_at, v.timeout_ms, v.backoff_policy, v.backoff_param_ms, v.cron_expr, v.zone_id,
    v.next_fire, v.terminated_at, v.execution_start_time, v.execution_end_time, v.queue_wait_ms, v.error_fingerprint,
    v.payload, v.params, v.job_result, v.on_success_payload, v.on_failure_payload,
    v.job_id AS raw_job_id
FROM ratchet.vw_jobs v;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_executions AS
SELECT
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(e.job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS job_id,
    e.fence, e.attempt, e.status, e.node_id, e.started_at, e.recorded_at, e.duration_ms, e.error_class,
    e.error_message, e.job_id AS raw_job_id
FROM ratchet.scheduler_job_execution e;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_logs AS
SELECT
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(l.job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS job_id,
    l.log_id, l.fence, l.ts, l.level, l.message, l.job_id AS raw_job_id
FROM ratchet.scheduler_job_log l;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_edges AS
SELECT
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(e.parent_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS parent_id,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(e.child_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS child_id,
    e.edge_no, e.condition_type, c.expression, e.priority, e.state, e.parent_id AS raw_parent_id,
    e.child_id AS raw_child_id
FROM ratchet.scheduler_job_edge e
LEFT JOIN ratchet.scheduler_workflow_condition c ON c.parent_id = e.parent_id AND c.child_id = e.child_id;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_batches AS
SELECT
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(b.batch_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS batch_id,
    b.total_items, b.completed_items, b.failed_items, b.closed, b.created_at, b.completed_at, m.child_execution_ms,
    b.batch_id AS raw_batch_id
FROM ratchet.scheduler_batch b
LEFT JOIN ratchet.scheduler_batch_metrics m ON m.batch_id = b.batch_id;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_fires AS
SELECT
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(f.master_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS master_id,
    f.fire_instant,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(f.job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS job_id,
    f.created_at, f.master_id AS raw_master_id, f.job_id AS raw_job_id
FROM ratchet.scheduler_recurring_fire f;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_business_keys AS
SELECT
    r.business_key,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(r.owner_job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS owner_job_id,
    r.owner_table, r.reserved_at, r.owner_job_id AS raw_owner_job_id
FROM ratchet.scheduler_business_key_reservation r;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_permits AS
SELECT
    p.resource_name,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(p.job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS job_id,
    p.node_id, p.acquired_at, p.job_id AS raw_job_id
FROM ratchet.scheduler_resource_permit p;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_alerts AS
SELECT
    a.alert_id,
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(a.job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS job_id,
    a.error_hash, a.fingerprint, a.alert_sent_at, a.job_id AS raw_job_id
FROM ratchet.scheduler_dlq_alert a;

CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_readable_archive AS
SELECT
    LOWER(INSERT(INSERT(INSERT(INSERT(HEX(a.original_job_id), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')) AS original_job_id,
    a.final_status, a.job_type, a.priority, a.queue, a.target, a.method, a.business_key, a.tags, a.total_attempts,
    a.final_error, a.created_at, a.terminated_at, a.archived_at, a.payload, a.job_result,
    a.original_job_id AS raw_original_job_id
FROM ratchet.scheduler_job_archive a;
