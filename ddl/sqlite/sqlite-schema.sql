-- Ratchet on SQLite: the clean install. docs/stores/sqlite.md explains it.
--
-- Names are written for the schema `ratchet`; the store puts in what it was opened with, plain names as a rule. To
-- install by hand, remove `ratchet.`. Times are UTC in milliseconds, ids are the 16 bytes of a UUID, booleans 0 and 1.
--
-- Small rows with a key of their own have no rowid: one tree to write instead of two.

CREATE TABLE ratchet.ratchet_schema_version (
    version     TEXT NOT NULL PRIMARY KEY,
    applied_at  INTEGER NOT NULL,
    description TEXT NOT NULL,
    checksum    TEXT NOT NULL
);

-- The cold row: what was asked for, and how it ended. It has a rowid: rows are long, and a long row is cheaper to write
-- and to write again when only numbers are compared on the way to it.
CREATE TABLE ratchet.scheduler_job (
    job_id                BLOB NOT NULL PRIMARY KEY CHECK (length(job_id) = 16),
    job_type              TEXT NOT NULL,
    queue                 TEXT NOT NULL,
    priority              INTEGER NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 4),
    max_retries           INTEGER NOT NULL DEFAULT 0,
    backoff_policy        TEXT NOT NULL DEFAULT 'NONE',
    backoff_param_ms      INTEGER NOT NULL DEFAULT 0,
    timeout_ms            INTEGER,
    expires_at            INTEGER,
    -- JSON stays the text that was given.
    payload               TEXT NOT NULL,
    target                TEXT NOT NULL,
    method                TEXT NOT NULL,
    params                TEXT,
    on_success_payload    TEXT,
    on_success_target     TEXT,
    on_success_method     TEXT,
    on_failure_payload    TEXT,
    on_failure_target     TEXT,
    on_failure_method     TEXT,
    idempotency_key       TEXT,
    business_key          TEXT,
    resource_name         TEXT,
    caller_principal      TEXT,
    trace_context         TEXT,
    batch_id              BLOB,
    depends_on            BLOB,
    superseded_by         BLOB,
    created_at            INTEGER NOT NULL,
    -- A schedule has a cold row alone: rec_status is A(ctive), P(aused), or null for every other job.
    cron_expr             TEXT,
    zone_id               TEXT,
    next_fire             INTEGER,
    rec_status            TEXT CHECK (rec_status IN ('A', 'P')),
    -- The last version of the queue row, so that a new one goes on from it: a fence never restarts.
    version               INTEGER NOT NULL DEFAULT 1,
    -- Set if and only if there is no queue row and the job has ended.
    terminal_status       TEXT CHECK (terminal_status IN ('SUCCEEDED', 'FAILED', 'CANCELED')),
    terminal_error        TEXT,
    error_fingerprint     TEXT,
    cancel_reason         TEXT,
    -- Canceled because a parent refused, so that a retry of that parent brings it back.
    cancel_cascaded       INTEGER NOT NULL DEFAULT 0,
    total_attempts        INTEGER NOT NULL DEFAULT 0,
    crash_count           INTEGER NOT NULL DEFAULT 0,
    blocked_by            INTEGER NOT NULL DEFAULT 0,
    open_parents          INTEGER NOT NULL DEFAULT 0,
    edge_count            INTEGER NOT NULL DEFAULT 0,
    scheduled_time        INTEGER,
    terminated_at         INTEGER,
    execution_start_time  INTEGER,
    execution_end_time    INTEGER,
    queue_wait_ms         INTEGER,
    job_result            TEXT,
    progress              TEXT
) STRICT;

-- Partial: a plain job appears in none of them.
CREATE INDEX ratchet.idx_job_depends_on ON ratchet.scheduler_job (depends_on) WHERE depends_on IS NOT NULL;
CREATE INDEX ratchet.idx_job_superseded_by ON ratchet.scheduler_job (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX ratchet.idx_job_business_key ON ratchet.scheduler_job (business_key) WHERE business_key IS NOT NULL;
CREATE INDEX ratchet.idx_job_batch ON ratchet.scheduler_job (batch_id, job_id) WHERE batch_id IS NOT NULL;
CREATE INDEX ratchet.idx_job_recurring_pending ON ratchet.scheduler_job (rec_status, next_fire)
    WHERE rec_status IS NOT NULL;
-- The oldest ends, for archive and purge: whoever looks for them holds the one lock that all writers need.
CREATE INDEX ratchet.idx_job_terminated ON ratchet.scheduler_job (terminated_at, job_id)
    WHERE terminal_status IS NOT NULL;

-- The hot row: exists while the job lives, and holds all that a claim reads and an owner writes.
-- No foreign key: the transaction that writes one row writes the other.
CREATE TABLE ratchet.scheduler_job_queue (
    job_id             BLOB NOT NULL PRIMARY KEY CHECK (length(job_id) = 16),
    status             TEXT NOT NULL CHECK (status IN ('PENDING', 'RUNNING', 'PAUSED')),
    job_type           TEXT NOT NULL,
    queue              TEXT NOT NULL,
    priority           INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 4),
    scheduled_time     INTEGER NOT NULL,
    business_key       TEXT,
    timeout_ms         INTEGER,
    max_retries        INTEGER NOT NULL,
    expires_at         INTEGER,
    batch_id           BLOB,
    attempts           INTEGER NOT NULL DEFAULT 0,
    crash_count        INTEGER NOT NULL DEFAULT 0,
    -- Parents that must still be satisfied, and parents that are not decided yet.
    blocked_by         INTEGER NOT NULL DEFAULT 0,
    open_parents       INTEGER NOT NULL DEFAULT 0,
    -- Edges that lead from this job.
    edge_count         INTEGER NOT NULL DEFAULT 0,
    picked_by          TEXT,
    picked_at          INTEGER,
    -- What it lacks that lies outside of it: `method:…` or `resource:…`. Claims pass it over for that.
    parked_on          TEXT,
    cancel_requested   INTEGER NOT NULL DEFAULT 0,
    cancel_reason      TEXT,
    paused_from_status TEXT CHECK (paused_from_status IN ('PENDING', 'FAILED')),
    last_error         TEXT,
    progress           TEXT,
    -- The fence.
    version            INTEGER NOT NULL DEFAULT 1,
    updated_at         INTEGER NOT NULL,
    CHECK ((status = 'RUNNING') = (picked_by IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- The five heads of a queue. Running, paused, blocked and parked rows are not in it, so they never stand before them.
-- (`parked_on` is always null here; without it, or without these parentheses, each head would be looked up in the table.)
CREATE INDEX ratchet.idx_claim_executable
    ON ratchet.scheduler_job_queue (queue, priority, scheduled_time, job_id, parked_on)
    WHERE status = 'PENDING' AND (blocked_by = 0 AND parked_on IS NULL);
-- The five heads of what is parked on one thing, and what of it has expired. Mostly empty.
CREATE INDEX ratchet.idx_queue_parked
    ON ratchet.scheduler_job_queue (queue, parked_on, priority, scheduled_time, job_id)
    WHERE status = 'PENDING' AND blocked_by = 0 AND parked_on IS NOT NULL;
CREATE INDEX ratchet.idx_queue_parked_expiry ON ratchet.scheduler_job_queue (queue, expires_at, job_id)
    WHERE status = 'PENDING' AND blocked_by = 0 AND parked_on IS NOT NULL AND expires_at IS NOT NULL;
-- What an owner holds: for `owned`, and for the dead whose jobs must be recovered.
CREATE INDEX ratchet.idx_queue_orphan ON ratchet.scheduler_job_queue (picked_by, job_id) WHERE status = 'RUNNING';

-- Which live job or schedule holds a business key.
CREATE TABLE ratchet.scheduler_business_key_reservation (
    business_key TEXT NOT NULL PRIMARY KEY,
    owner_job_id BLOB NOT NULL,
    owner_table  TEXT NOT NULL CHECK (owner_table IN ('QUEUE', 'RECURRING')),
    reserved_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Every idempotency key that was ever used, by the hash of its bytes. Outlives the job and its archive record.
CREATE TABLE ratchet.scheduler_idempotency_key (
    key_hash   BLOB NOT NULL PRIMARY KEY,
    job_id     BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_job_tag (
    job_id BLOB NOT NULL,
    tag    TEXT NOT NULL,
    -- The order of a job's tags.
    place  INTEGER NOT NULL,
    PRIMARY KEY (job_id, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX ratchet.idx_job_tag ON ratchet.scheduler_job_tag (tag, job_id);

-- History. A row proves that the outcome of this fence was recorded.
CREATE TABLE ratchet.scheduler_job_execution (
    job_id        BLOB NOT NULL,
    fence         INTEGER NOT NULL,
    node_id       TEXT NOT NULL,
    status        TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    started_at    INTEGER,
    recorded_at   INTEGER NOT NULL,
    duration_ms   INTEGER,
    error_class   TEXT,
    error_message TEXT,
    PRIMARY KEY (job_id, fence)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: whoever reads on from a line must not miss one that took the number of a purged line.
CREATE TABLE ratchet.scheduler_job_log (
    log_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id  BLOB NOT NULL,
    fence   INTEGER NOT NULL,
    ts      INTEGER NOT NULL,
    level   TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX ratchet.idx_job_log_job ON ratchet.scheduler_job_log (job_id, log_id);
CREATE INDEX ratchet.idx_job_log_ts ON ratchet.scheduler_job_log (ts);

-- What waits for what.
CREATE TABLE ratchet.scheduler_job_edge (
    edge_no        INTEGER PRIMARY KEY,
    parent_id      BLOB NOT NULL,
    child_id       BLOB NOT NULL,
    condition_type TEXT NOT NULL,
    priority       INTEGER NOT NULL DEFAULT 0,
    state          TEXT NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'SATISFIED', 'REFUSED')),
    UNIQUE (parent_id, child_id)
) STRICT;
CREATE INDEX ratchet.idx_job_edge_child ON ratchet.scheduler_job_edge (child_id);

-- What an edge's condition compares with; success and failure compare with nothing and have no row.
CREATE TABLE ratchet.scheduler_workflow_condition (
    parent_id  BLOB NOT NULL,
    child_id   BLOB NOT NULL,
    expression TEXT NOT NULL,
    PRIMARY KEY (parent_id, child_id),
    FOREIGN KEY (parent_id, child_id) REFERENCES ratchet.scheduler_job_edge (parent_id, child_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- A batch is known by its parent job.
CREATE TABLE ratchet.scheduler_batch (
    batch_id        BLOB NOT NULL PRIMARY KEY,
    total_items     INTEGER NOT NULL,
    completed_items INTEGER NOT NULL DEFAULT 0,
    failed_items    INTEGER NOT NULL DEFAULT 0,
    closed          INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    completed_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_batch_metrics (
    batch_id           BLOB NOT NULL PRIMARY KEY REFERENCES ratchet.scheduler_batch ON DELETE CASCADE,
    child_execution_ms INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_recurring_fire (
    master_id    BLOB NOT NULL,
    fire_instant INTEGER NOT NULL,
    job_id       BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (master_id, fire_instant)
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_node (
    node_id       TEXT NOT NULL PRIMARY KEY,
    label         TEXT NOT NULL,
    node_version  TEXT NOT NULL,
    -- A JSON array of texts.
    methods       TEXT NOT NULL,
    queues        TEXT NOT NULL,
    started_at    INTEGER NOT NULL,
    heartbeat_ts  INTEGER NOT NULL,
    -- Since when it beats with no gap longer than this.
    beating_since INTEGER NOT NULL,
    beat_gap_ms   INTEGER NOT NULL DEFAULT 0,
    lease_until   INTEGER NOT NULL,
    reaped        INTEGER NOT NULL DEFAULT 0,
    skew_ms       INTEGER NOT NULL DEFAULT 0,
    running       INTEGER NOT NULL DEFAULT 0,
    slots         INTEGER NOT NULL DEFAULT 0,
    draining      INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_queue_pause (
    queue     TEXT NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The row of a lock stays when the lock is free: its term never restarts.
CREATE TABLE ratchet.scheduler_lock (
    lock_name  TEXT NOT NULL PRIMARY KEY,
    owner_node TEXT,
    term       INTEGER NOT NULL,
    locked_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_resource_limit (
    resource_name  TEXT NOT NULL PRIMARY KEY,
    max_concurrent INTEGER NOT NULL,
    retry_delay_ms INTEGER NOT NULL DEFAULT 5000,
    updated_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_resource_permit (
    resource_name TEXT NOT NULL,
    job_id        BLOB NOT NULL,
    node_id       TEXT NOT NULL,
    acquired_at   INTEGER NOT NULL,
    PRIMARY KEY (job_id, resource_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX ratchet.idx_permit_resource ON ratchet.scheduler_resource_permit (resource_name);

CREATE TABLE ratchet.scheduler_dlq_alert (
    alert_id      INTEGER PRIMARY KEY,
    job_id        BLOB NOT NULL,
    error_hash    TEXT NOT NULL,
    fingerprint   TEXT NOT NULL,
    alert_sent_at INTEGER NOT NULL
) STRICT;
CREATE INDEX ratchet.idx_dlq_alert_job ON ratchet.scheduler_dlq_alert (job_id, error_hash, alert_sent_at);

-- Since when like errors were told about, and how many there were since.
CREATE TABLE ratchet.scheduler_dlq_alert_group (
    fingerprint TEXT NOT NULL PRIMARY KEY,
    told_at     INTEGER NOT NULL,
    alert_count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ratchet.scheduler_job_archive (
    original_job_id BLOB NOT NULL PRIMARY KEY,
    final_status    TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    priority        INTEGER NOT NULL,
    queue           TEXT NOT NULL,
    payload         TEXT NOT NULL,
    target          TEXT NOT NULL,
    method          TEXT NOT NULL,
    business_key    TEXT,
    -- A JSON array of texts.
    tags            TEXT NOT NULL,
    total_attempts  INTEGER NOT NULL,
    final_error     TEXT,
    job_result      TEXT,
    created_at      INTEGER NOT NULL,
    terminated_at   INTEGER NOT NULL,
    archived_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ratchet.idx_archive_target ON ratchet.scheduler_job_archive (target, original_job_id);
CREATE INDEX ratchet.idx_archive_business_key ON ratchet.scheduler_job_archive (business_key, original_job_id)
    WHERE business_key IS NOT NULL;
CREATE INDEX ratchet.idx_archive_archived_at ON ratchet.scheduler_job_archive (archived_at);

-- A job as readers see it: both rows, and the one status that follows from them.
-- SQLite reads every view when it opens a file, so this one is written for 3.40, the `sqlite3` of Debian 12.
CREATE VIEW ratchet.vw_jobs AS
SELECT
    j.job_id, j.job_type, j.queue, j.priority, j.max_retries, j.backoff_policy, j.backoff_param_ms, j.timeout_ms,
    j.expires_at, j.payload, j.target, j.method, j.params, j.on_success_payload, j.on_success_target,
    j.on_success_method, j.on_failure_payload, j.on_failure_target, j.on_failure_method, j.idempotency_key,
    j.business_key, j.resource_name, j.caller_principal, j.trace_context, j.batch_id, j.depends_on, j.superseded_by,
    j.created_at, j.cron_expr, j.zone_id, j.next_fire, j.rec_status,
    (
        SELECT json_group_array(t.tag)
        FROM (SELECT p.tag FROM ratchet.scheduler_job_tag p WHERE p.job_id = j.job_id ORDER BY p.place) t
    ) AS tags,
    CASE
        WHEN q.cancel_requested THEN 'CANCELED'
        WHEN q.job_id IS NOT NULL THEN q.status
        WHEN j.rec_status = 'A' THEN 'PENDING'
        WHEN j.rec_status = 'P' THEN 'PAUSED'
        ELSE j.terminal_status
    END AS status,
    coalesce(q.version, j.version) AS version,
    coalesce(q.scheduled_time, j.scheduled_time, j.created_at) AS scheduled_time,
    coalesce(q.attempts, j.total_attempts) AS attempts,
    coalesce(q.crash_count, j.crash_count) AS crash_count,
    coalesce(q.blocked_by, j.blocked_by) AS blocked_by,
    coalesce(q.open_parents, j.open_parents) AS open_parents,
    coalesce(q.edge_count, j.edge_count) AS edge_count,
    q.picked_by, q.picked_at, q.parked_on,
    CASE WHEN j.rec_status = 'P' THEN 'PENDING' ELSE q.paused_from_status END AS paused_from_status,
    CASE WHEN q.job_id IS NULL THEN j.terminal_error ELSE q.last_error END AS last_error,
    CASE WHEN q.job_id IS NULL THEN j.cancel_reason ELSE q.cancel_reason END AS cancel_reason,
    CASE WHEN q.job_id IS NULL THEN j.progress ELSE q.progress END AS progress,
    coalesce(q.cancel_requested, 0) AS cancel_requested,
    j.terminal_status, j.error_fingerprint, j.terminated_at, j.execution_start_time, j.execution_end_time,
    j.queue_wait_ms, j.job_result
FROM ratchet.scheduler_job j
LEFT JOIN ratchet.scheduler_job_queue q ON q.job_id = j.job_id;

-- Recorded as the migrator would have done. `cargo xtask fix` keeps the checksums.
INSERT INTO ratchet.ratchet_schema_version (version, applied_at, description, checksum)
VALUES ('001', CAST(round(unixepoch('subsec') * 1000) AS INTEGER), 'baseline', '1bb57ea73588b3a56705d4118312f4137df9b010d074a2e7bb807c8fcb38379e');
