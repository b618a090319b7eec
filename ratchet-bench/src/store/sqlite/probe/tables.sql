-- The same model by hand: a hot row while the job lives, a cold row, a row of history, with every column that a plain
-- job fills and the indexes that find what is due, what an owner holds and what ended first.
CREATE TABLE probe_cold (
    job_id               BLOB NOT NULL PRIMARY KEY,
    job_type             TEXT NOT NULL,
    queue                TEXT NOT NULL,
    priority             INTEGER NOT NULL,
    max_retries          INTEGER NOT NULL,
    backoff_policy       TEXT NOT NULL,
    backoff_param_ms     INTEGER NOT NULL,
    payload              TEXT NOT NULL,
    target               TEXT NOT NULL,
    method               TEXT NOT NULL,
    created_at           INTEGER NOT NULL,
    version              INTEGER NOT NULL,
    terminal_status      TEXT,
    total_attempts       INTEGER NOT NULL,
    crash_count          INTEGER NOT NULL,
    scheduled_time       INTEGER,
    terminated_at        INTEGER,
    execution_start_time INTEGER,
    execution_end_time   INTEGER,
    queue_wait_ms        INTEGER,
    job_result           TEXT
);
CREATE INDEX probe_cold_ended ON probe_cold (terminated_at, job_id) WHERE terminal_status IS NOT NULL;

CREATE TABLE probe_hot (
    job_id           BLOB NOT NULL PRIMARY KEY,
    status           TEXT NOT NULL,
    job_type         TEXT NOT NULL,
    queue            TEXT NOT NULL,
    priority         INTEGER NOT NULL,
    scheduled_time   INTEGER NOT NULL,
    max_retries      INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    crash_count      INTEGER NOT NULL,
    blocked_by       INTEGER NOT NULL,
    edge_count       INTEGER NOT NULL,
    picked_by        TEXT,
    picked_at        INTEGER,
    cancel_requested INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX probe_hot_claim ON probe_hot (queue, priority DESC, scheduled_time, job_id)
    WHERE status = 'PENDING' AND blocked_by = 0;
CREATE INDEX probe_hot_owner ON probe_hot (picked_by, job_id) WHERE status = 'RUNNING';

CREATE TABLE probe_history (
    job_id      BLOB NOT NULL,
    fence       INTEGER NOT NULL,
    node_id     TEXT NOT NULL,
    status      TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    started_at  INTEGER,
    recorded_at INTEGER NOT NULL,
    duration_ms INTEGER,
    PRIMARY KEY (job_id, fence)
) WITHOUT ROWID;
