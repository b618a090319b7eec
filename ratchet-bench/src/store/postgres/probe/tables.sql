-- The same model by hand, as lean as it can be: a hot row while the job lives, a cold row, a row of history.
CREATE TABLE probe_cold (
    job_id          uuid PRIMARY KEY,
    created_at      timestamptz NOT NULL,
    priority        smallint NOT NULL,
    queue           text NOT NULL,
    target          text NOT NULL,
    method          text NOT NULL,
    payload         json NOT NULL,
    terminal_status text,
    terminated_at   timestamptz,
    started_at      timestamptz,
    ended_at        timestamptz,
    result          json
) WITH (fillfactor = 70);

CREATE TABLE probe_hot (
    job_id         uuid PRIMARY KEY,
    scheduled_time timestamptz NOT NULL,
    picked_at      timestamptz,
    version        bigint NOT NULL,
    attempts       integer NOT NULL,
    priority       smallint NOT NULL,
    queue          text NOT NULL,
    status         text NOT NULL,
    picked_by      text
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX probe_hot_claim ON probe_hot (queue, priority DESC, scheduled_time, job_id) WHERE status = 'PENDING';
-- What an owner holds must be found when it dies.
CREATE INDEX probe_hot_owner ON probe_hot (picked_by, job_id) WHERE status = 'RUNNING';

CREATE TABLE probe_history (
    job_id      uuid NOT NULL,
    fence       bigint NOT NULL,
    node_id     text NOT NULL,
    status      text NOT NULL,
    attempt     integer NOT NULL,
    started_at  timestamptz,
    recorded_at timestamptz NOT NULL,
    duration_ms bigint,
    PRIMARY KEY (job_id, fence)
);
