-- Ratchet on MySQL (8.0.19 or newer) and MariaDB (10.6 or newer): the clean install. docs/schema.md explains it.
--
-- Names are qualified by the database `ratchet`. To install by hand under another name, replace `ratchet.` and the
-- next line. Times are UTC with whole milliseconds. Ids are the 16 bytes of a UUID in their usual order;
-- views/vw_jobs.sql shows them as people write them.
--
-- Text compares byte for byte, trailing blanks included. Only a NO PAD collation does that, and the two servers call
-- theirs by different names: each server reads its own of the two comments behind COLLATE and skips the other.
--
-- JSON that callers give stays text, as it was given. JSON_VALID would refuse some of it (lone surrogates, 1e400 on
-- MySQL, more than 31 levels on MariaDB), so the server only checks that a text begins as JSON does.

CREATE DATABASE IF NOT EXISTS ratchet;

CREATE TABLE ratchet.ratchet_schema_version (
    version     VARCHAR(20) NOT NULL PRIMARY KEY,
    applied_at  DATETIME(3) NOT NULL,
    description VARCHAR(200) NOT NULL,
    checksum    VARCHAR(64) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The cold row: what was asked for, and how it ended. No index mentions a column that an end changes.
CREATE TABLE ratchet.scheduler_job (
    job_id                BINARY(16) NOT NULL PRIMARY KEY,
    job_type              VARCHAR(16) NOT NULL,
    queue                 VARCHAR(64) NOT NULL,
    priority              SMALLINT NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 4),
    max_retries           BIGINT NOT NULL DEFAULT 0,
    backoff_policy        VARCHAR(16) NOT NULL DEFAULT 'NONE',
    backoff_param_ms      BIGINT NOT NULL DEFAULT 0,
    timeout_ms            BIGINT,
    expires_at            DATETIME(3),
    payload               LONGTEXT NOT NULL
        CHECK (payload <> '' AND (LEFT(payload, 1) <= ' ' OR INSTR('{["-0123456789tfn', LEFT(payload, 1)) > 0)),
    target                VARCHAR(255) NOT NULL,
    method                VARCHAR(128) NOT NULL,
    params                LONGTEXT
        CHECK (params <> '' AND (LEFT(params, 1) <= ' ' OR INSTR('{["-0123456789tfn', LEFT(params, 1)) > 0)),
    on_success_payload    LONGTEXT
        CHECK (on_success_payload <> '' AND
            (LEFT(on_success_payload, 1) <= ' '
             OR INSTR('{["-0123456789tfn', LEFT(on_success_payload, 1)) > 0)),
    on_success_target     VARCHAR(255),
    on_success_method     VARCHAR(128),
    on_failure_payload    LONGTEXT
        CHECK (on_failure_payload <> '' AND
            (LEFT(on_failure_payload, 1) <= ' '
             OR INSTR('{["-0123456789tfn', LEFT(on_failure_payload, 1)) > 0)),
    on_failure_target     VARCHAR(255),
    on_failure_method     VARCHAR(128),
    idempotency_key       VARCHAR(255),
    business_key          VARCHAR(255),
    resource_name         VARCHAR(100),
    caller_principal      VARCHAR(255),
    trace_context         VARCHAR(512),
    batch_id              BINARY(16),
    depends_on            BINARY(16),
    superseded_by         BINARY(16),
    created_at            DATETIME(3) NOT NULL,
    -- A schedule has a cold row alone: rec_status is A(ctive), P(aused), or null for every other job.
    cron_expr             TEXT,
    zone_id               VARCHAR(64),
    next_fire             DATETIME(3),
    rec_status            CHAR(1) CHECK (rec_status IN ('A', 'P')),
    -- The last version of the queue row, so that a new one goes on from it: a fence never restarts.
    version               BIGINT NOT NULL DEFAULT 1,
    -- Set if and only if there is no queue row and the job has ended.
    terminal_status       VARCHAR(16) CHECK (terminal_status IN ('SUCCEEDED', 'FAILED', 'CANCELED')),
    terminal_error        MEDIUMTEXT,
    error_fingerprint     VARCHAR(32),
    cancel_reason         MEDIUMTEXT,
    -- Canceled because a parent refused, so that a retry of that parent brings it back.
    cancel_cascaded       BOOLEAN NOT NULL DEFAULT FALSE,
    total_attempts        BIGINT NOT NULL DEFAULT 0,
    crash_count           BIGINT NOT NULL DEFAULT 0,
    blocked_by            BIGINT NOT NULL DEFAULT 0,
    open_parents          BIGINT NOT NULL DEFAULT 0,
    edge_count            BIGINT NOT NULL DEFAULT 0,
    scheduled_time        DATETIME(3),
    terminated_at         DATETIME(3),
    execution_start_time  DATETIME(3),
    execution_end_time    DATETIME(3),
    queue_wait_ms         BIGINT,
    job_result            LONGTEXT
        CHECK (job_result <> '' AND
            (LEFT(job_result, 1) <= ' '
             OR INSTR('{["-0123456789tfn', LEFT(job_result, 1)) > 0)),
    progress              LONGTEXT
        CHECK (progress <> '' AND (LEFT(progress, 1) <= ' ' OR INSTR('{["-0123456789tfn', LEFT(progress, 1)) > 0)),
    KEY idx_job_depends_on (depends_on),
    KEY idx_job_superseded_by (superseded_by),
    KEY idx_job_business_key (business_key),
    KEY idx_job_batch (batch_id, job_id),
    KEY idx_job_recurring_pending (rec_status, next_fire)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- The hot row: exists while the job lives, and holds all that a claim reads and an owner writes.
-- No foreign key: the transaction that writes one row writes the other.
CREATE TABLE ratchet.scheduler_job_queue (
    job_id             BINARY(16) NOT NULL PRIMARY KEY,
    status             VARCHAR(16) NOT NULL CHECK (status IN ('PENDING', 'RUNNING', 'PAUSED')),
    job_type           VARCHAR(16) NOT NULL,
    queue              VARCHAR(64) NOT NULL,
    priority           SMALLINT NOT NULL CHECK (priority BETWEEN 0 AND 4),
    scheduled_time     DATETIME(3) NOT NULL,
    business_key       VARCHAR(255),
    timeout_ms         BIGINT,
    max_retries        BIGINT NOT NULL,
    expires_at         DATETIME(3),
    batch_id           BINARY(16),
    attempts           BIGINT NOT NULL DEFAULT 0,
    crash_count        BIGINT NOT NULL DEFAULT 0,
    -- Parents that must still be satisfied, and parents that are not decided yet.
    blocked_by         BIGINT NOT NULL DEFAULT 0,
    open_parents       BIGINT NOT NULL DEFAULT 0,
    -- Edges that lead from this job: kept here, where the owner's write and a new edge meet on one row lock.
    edge_count         BIGINT NOT NULL DEFAULT 0,
    picked_by          VARCHAR(64),
    picked_at          DATETIME(3),
    -- What it lacks that lies outside of it: `method:…` or `resource:…`. Claims pass it over for that.
    parked_on          VARCHAR(420),
    is_parked          BOOLEAN GENERATED ALWAYS AS (parked_on IS NOT NULL) VIRTUAL,
    cancel_requested   BOOLEAN NOT NULL DEFAULT FALSE,
    cancel_reason      MEDIUMTEXT,
    paused_from_status VARCHAR(16) CHECK (paused_from_status IN ('PENDING', 'FAILED')),
    last_error         MEDIUMTEXT,
    progress           LONGTEXT
        CHECK (progress <> '' AND (LEFT(progress, 1) <= ' ' OR INSTR('{["-0123456789tfn', LEFT(progress, 1)) > 0)),
    -- The fence.
    version            BIGINT NOT NULL DEFAULT 1,
    updated_at         DATETIME(3) NOT NULL,
    CHECK ((status = 'RUNNING') = (picked_by IS NOT NULL)),
    -- The five heads of a queue. There are no partial indexes, so what tells executable rows from running, paused,
    -- blocked and parked ones leads the key: those never stand before the heads.
    KEY idx_claim_executable (status, blocked_by, is_parked, queue, priority, scheduled_time, job_id),
    -- The five heads of what is parked on one thing, and what of it has expired.
    KEY idx_queue_parked (queue, parked_on, status, blocked_by, priority, scheduled_time, job_id),
    KEY idx_queue_parked_expiry (queue, is_parked, expires_at, job_id),
    -- What an owner holds: for `owned`, and for the dead whose jobs must be recovered.
    KEY idx_queue_orphan (picked_by, job_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- Which live job or schedule holds a business key.
CREATE TABLE ratchet.scheduler_business_key_reservation (
    business_key VARCHAR(255) NOT NULL,
    owner_job_id BINARY(16) NOT NULL,
    owner_table  VARCHAR(16) NOT NULL CHECK (owner_table IN ('QUEUE', 'RECURRING')),
    reserved_at  DATETIME(3) NOT NULL,
    CONSTRAINT pk_scheduler_business_key_reservation PRIMARY KEY (business_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- Every idempotency key that was ever used, by the SHA-256 of its bytes. Outlives the job and its archive record.
CREATE TABLE ratchet.scheduler_idempotency_key (
    key_hash   BINARY(32) NOT NULL PRIMARY KEY,
    job_id     BINARY(16) NOT NULL,
    created_at DATETIME(3) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_job_tag (
    job_id BINARY(16) NOT NULL,
    tag    VARCHAR(64) NOT NULL,
    -- The order in which a job's tags were given. Whoever inserts counts: AUTO_INCREMENT would need one more index.
    place  BIGINT NOT NULL,
    PRIMARY KEY (job_id, tag),
    KEY idx_job_tag (tag, job_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- History. A row proves that the outcome of this fence was recorded.
CREATE TABLE ratchet.scheduler_job_execution (
    job_id        BINARY(16) NOT NULL,
    fence         BIGINT NOT NULL,
    node_id       VARCHAR(64) NOT NULL,
    status        VARCHAR(16) NOT NULL,
    attempt       BIGINT NOT NULL,
    started_at    DATETIME(3),
    recorded_at   DATETIME(3) NOT NULL,
    duration_ms   BIGINT,
    error_class   TEXT,
    error_message MEDIUMTEXT,
    PRIMARY KEY (job_id, fence)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_job_log (
    log_id  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    job_id  BINARY(16) NOT NULL,
    fence   BIGINT NOT NULL,
    ts      DATETIME(3) NOT NULL,
    level   VARCHAR(8) NOT NULL,
    message MEDIUMTEXT NOT NULL,
    KEY idx_job_log_job (job_id, log_id),
    KEY idx_job_log_ts (ts)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- What waits for what.
CREATE TABLE ratchet.scheduler_job_edge (
    parent_id      BINARY(16) NOT NULL,
    child_id       BINARY(16) NOT NULL,
    edge_no        BIGINT NOT NULL AUTO_INCREMENT,
    condition_type VARCHAR(32) NOT NULL,
    priority       INT NOT NULL DEFAULT 0,
    state          VARCHAR(16) NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'SATISFIED', 'REFUSED')),
    PRIMARY KEY (parent_id, child_id),
    UNIQUE KEY uk_job_edge_no (edge_no),
    KEY idx_job_edge_child (child_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- What an edge's condition compares with; success and failure compare with nothing and have no row.
CREATE TABLE ratchet.scheduler_workflow_condition (
    parent_id  BINARY(16) NOT NULL,
    child_id   BINARY(16) NOT NULL,
    expression LONGTEXT NOT NULL
        CHECK (expression <> '' AND
            (LEFT(expression, 1) <= ' '
             OR INSTR('{["-0123456789tfn', LEFT(expression, 1)) > 0)),
    PRIMARY KEY (parent_id, child_id),
    FOREIGN KEY (parent_id, child_id) REFERENCES ratchet.scheduler_job_edge (parent_id, child_id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- A batch is known by its parent job.
CREATE TABLE ratchet.scheduler_batch (
    batch_id        BINARY(16) NOT NULL PRIMARY KEY,
    total_items     BIGINT NOT NULL,
    completed_items BIGINT NOT NULL DEFAULT 0,
    failed_items    BIGINT NOT NULL DEFAULT 0,
    closed          BOOLEAN NOT NULL,
    created_at      DATETIME(3) NOT NULL,
    completed_at    DATETIME(3)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_batch_metrics (
    batch_id           BINARY(16) NOT NULL PRIMARY KEY,
    child_execution_ms BIGINT NOT NULL DEFAULT 0,
    FOREIGN KEY (batch_id) REFERENCES ratchet.scheduler_batch (batch_id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_recurring_fire (
    master_id    BINARY(16) NOT NULL,
    fire_instant DATETIME(3) NOT NULL,
    job_id       BINARY(16) NOT NULL,
    created_at   DATETIME(3) NOT NULL,
    PRIMARY KEY (master_id, fire_instant)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_node (
    node_id       VARCHAR(64) NOT NULL PRIMARY KEY,
    label         TEXT NOT NULL,
    node_version  TEXT NOT NULL,
    -- A JSON array of names.
    methods       LONGTEXT NOT NULL CHECK (JSON_VALID(methods)),
    queues        LONGTEXT NOT NULL CHECK (JSON_VALID(queues)),
    started_at    DATETIME(3) NOT NULL,
    heartbeat_ts  DATETIME(3) NOT NULL,
    -- Since when it beats with no gap longer than this.
    beating_since DATETIME(3) NOT NULL,
    beat_gap_ms   BIGINT NOT NULL DEFAULT 0,
    lease_until   DATETIME(3) NOT NULL,
    reaped        BOOLEAN NOT NULL DEFAULT FALSE,
    skew_ms       BIGINT NOT NULL DEFAULT 0,
    running       BIGINT NOT NULL DEFAULT 0,
    slots         BIGINT NOT NULL DEFAULT 0,
    draining      BOOLEAN NOT NULL DEFAULT FALSE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_queue_pause (
    queue     VARCHAR(64) NOT NULL PRIMARY KEY,
    paused_at DATETIME(3) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- The row of a lock stays when the lock is free: its term never restarts.
CREATE TABLE ratchet.scheduler_lock (
    lock_name  VARCHAR(128) NOT NULL PRIMARY KEY,
    owner_node VARCHAR(64),
    term       BIGINT NOT NULL,
    locked_at  DATETIME(3) NOT NULL,
    expires_at DATETIME(3) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_resource_limit (
    resource_name  VARCHAR(100) NOT NULL PRIMARY KEY,
    max_concurrent BIGINT NOT NULL,
    retry_delay_ms BIGINT NOT NULL DEFAULT 5000,
    updated_at     DATETIME(3) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_resource_permit (
    resource_name VARCHAR(100) NOT NULL,
    job_id        BINARY(16) NOT NULL,
    node_id       VARCHAR(64) NOT NULL,
    acquired_at   DATETIME(3) NOT NULL,
    PRIMARY KEY (job_id, resource_name),
    KEY idx_permit_resource (resource_name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_dlq_alert (
    alert_id      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    job_id        BINARY(16) NOT NULL,
    error_hash    VARCHAR(64) NOT NULL,
    fingerprint   VARCHAR(32) NOT NULL,
    alert_sent_at DATETIME(3) NOT NULL,
    KEY idx_dlq_alert_job (job_id, error_hash, alert_sent_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- Since when like errors were told about, and how many there were since.
CREATE TABLE ratchet.scheduler_dlq_alert_group (
    fingerprint VARCHAR(32) NOT NULL PRIMARY KEY,
    told_at     DATETIME(3) NOT NULL,
    alert_count BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

CREATE TABLE ratchet.scheduler_job_archive (
    original_job_id BINARY(16) NOT NULL PRIMARY KEY,
    final_status    VARCHAR(16) NOT NULL,
    job_type        VARCHAR(16) NOT NULL,
    priority        SMALLINT NOT NULL,
    queue           VARCHAR(64) NOT NULL,
    payload         LONGTEXT NOT NULL
        CHECK (payload <> '' AND (LEFT(payload, 1) <= ' ' OR INSTR('{["-0123456789tfn', LEFT(payload, 1)) > 0)),
    target          VARCHAR(255) NOT NULL,
    method          VARCHAR(128) NOT NULL,
    business_key    VARCHAR(255),
    -- A JSON array, in the order in which they were given.
    tags            LONGTEXT NOT NULL CHECK (JSON_VALID(tags)),
    total_attempts  BIGINT NOT NULL,
    final_error     MEDIUMTEXT,
    job_result      LONGTEXT
        CHECK (job_result <> '' AND
            (LEFT(job_result, 1) <= ' '
             OR INSTR('{["-0123456789tfn', LEFT(job_result, 1)) > 0)),
    created_at      DATETIME(3) NOT NULL,
    terminated_at   DATETIME(3) NOT NULL,
    archived_at     DATETIME(3) NOT NULL,
    KEY idx_archive_target (target, original_job_id),
    KEY idx_archive_business_key (business_key, original_job_id),
    KEY idx_archive_archived_at (archived_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */;

-- A job as readers see it: both rows, and the one status that follows from them. MERGE must be asked for: MySQL would
-- otherwise copy the whole view for every question, because of the query for tags in it.
CREATE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW ratchet.vw_jobs AS
SELECT
    j.job_id, j.job_type, j.queue, j.priority, j.max_retries, j.backoff_policy, j.backoff_param_ms, j.timeout_ms,
    j.expires_at, j.payload, j.target, j.method, j.params,
    j.on_success_payload, j.on_success_target, j.on_success_method,
    j.on_failure_payload, j.on_failure_target, j.on_failure_method,
    j.idempotency_key, j.business_key, j.resource_name, j.caller_principal, j.trace_context, j.batch_id,
    j.depends_on, j.superseded_by, j.created_at, j.cron_expr, j.zone_id, j.next_fire, j.rec_status,
    -- A JSON array. GROUP_CONCAT cuts it off at group_concat_max_len, which the store raises for its connections.
    CONCAT('[', COALESCE((
        SELECT GROUP_CONCAT(JSON_QUOTE(t.tag) ORDER BY t.place SEPARATOR ',')
        FROM ratchet.scheduler_job_tag t
        WHERE t.job_id = j.job_id
    ), ''), ']') AS tags,
    CASE
        WHEN q.cancel_requested THEN 'CANCELED'
        WHEN q.job_id IS NOT NULL THEN q.status
        WHEN j.rec_status = 'A' THEN 'PENDING'
        WHEN j.rec_status = 'P' THEN 'PAUSED'
        ELSE j.terminal_status
    END AS status,
    COALESCE(q.version, j.version) AS version,
    COALESCE(q.scheduled_time, j.scheduled_time, j.created_at) AS scheduled_time,
    COALESCE(q.attempts, j.total_attempts) AS attempts,
    COALESCE(q.crash_count, j.crash_count) AS crash_count,
    COALESCE(q.blocked_by, j.blocked_by) AS blocked_by,
    COALESCE(q.open_parents, j.open_parents) AS open_parents,
    COALESCE(q.edge_count, j.edge_count) AS edge_count,
    q.picked_by, q.picked_at, q.parked_on,
    CASE WHEN j.rec_status = 'P' THEN 'PENDING' ELSE q.paused_from_status END AS paused_from_status,
    CASE WHEN q.job_id IS NULL THEN j.terminal_error ELSE q.last_error END AS last_error,
    CASE WHEN q.job_id IS NULL THEN j.cancel_reason ELSE q.cancel_reason END AS cancel_reason,
    CASE WHEN q.job_id IS NULL THEN j.progress ELSE q.progress END AS progress,
    COALESCE(q.cancel_requested, FALSE) AS cancel_requested,
    j.terminal_status, j.error_fingerprint, j.terminated_at, j.execution_start_time, j.execution_end_time,
    j.queue_wait_ms, j.job_result
FROM ratchet.scheduler_job j
LEFT JOIN ratchet.scheduler_job_queue q ON q.job_id = j.job_id;

-- Recorded as the migrator would have done. `cargo xtask fix` keeps the checksums.
INSERT INTO ratchet.ratchet_schema_version (version, applied_at, description, checksum)
VALUES ('001', UTC_TIMESTAMP(3), 'baseline', 'dd3e0ac39971b20cb91bf1cf41fcf102e4267cd25260d599445ee2b4a20d9294');
