-- The same model by hand: a hot row while the job lives, a cold row, a row of history, with every column that a plain
-- job fills and the indexes that find what is due and what an owner holds. No check, no key beyond the primary ones.
CREATE TABLE probe_cold (
    job_id               uuid PRIMARY KEY,
    job_type             text NOT NULL,
    queue                text NOT NULL,
    priority             smallint NOT NULL,
    max_retries          bigint NOT NULL,
    backoff_policy       text NOT NULL,
    backoff_param_ms     bigint NOT NULL,
    payload              json NOT NULL,
    target               text NOT NULL,
    method               text NOT NULL,
    created_at           timestamptz NOT NULL,
    version              bigint NOT NULL,
    terminal_status      text,
    total_attempts       bigint NOT NULL,
    crash_count          bigint NOT NULL,
    scheduled_time       timestamptz,
    terminated_at        timestamptz,
    execution_start_time timestamptz,
    execution_end_time   timestamptz,
    queue_wait_ms        bigint,
    job_result           json
) WITH (fillfactor = 50);

CREATE TABLE probe_hot (
    job_id           uuid PRIMARY KEY,
    status           text NOT NULL,
    job_type         text NOT NULL,
    queue            text NOT NULL,
    priority         smallint NOT NULL,
    scheduled_time   timestamptz NOT NULL,
    max_retries      bigint NOT NULL,
    attempts         bigint NOT NULL,
    crash_count      bigint NOT NULL,
    blocked_by       bigint NOT NULL,
    edge_count       bigint NOT NULL,
    picked_by        text,
    picked_at        timestamptz,
    cancel_requested boolean NOT NULL,
    version          bigint NOT NULL,
    updated_at       timestamptz NOT NULL
) WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX probe_hot_claim ON probe_hot (queue, priority DESC, scheduled_time, job_id)
    WHERE status = 'PENDING' AND blocked_by = 0;
CREATE INDEX probe_hot_owner ON probe_hot (picked_by, job_id) WHERE status = 'RUNNING';

CREATE TABLE probe_history (
    job_id      uuid NOT NULL,
    fence       bigint NOT NULL,
    node_id     text NOT NULL,
    status      text NOT NULL,
    attempt     bigint NOT NULL,
    started_at  timestamptz,
    recorded_at timestamptz NOT NULL,
    duration_ms bigint,
    PRIMARY KEY (job_id, fence)
);
