-- Ratchet on PostgreSQL: the clean install. docs/stores/postgresql.md explains it.
--
-- Names are qualified by the schema `ratchet`; the store puts in the name that it was opened with. To install by
-- hand under another name, replace `ratchet.` and the next line. Times are UTC with whole milliseconds.

CREATE SCHEMA ratchet;

CREATE TABLE ratchet.ratchet_schema_version (
    version     varchar(20) PRIMARY KEY,
    applied_at  timestamptz(3) NOT NULL,
    description varchar(200) NOT NULL,
    checksum    varchar(64) NOT NULL
);

-- The cold row: what was asked for, and how it ended. Written twice in its life, so half of each page is left free for
-- the second time: one call may end all the jobs of a page. For that to stay a heap-only update, no index mentions a
-- column that an end changes. No foreign key leads here: it would be a trigger on every end.
CREATE TABLE ratchet.scheduler_job (
    job_id                uuid PRIMARY KEY,
    job_type              varchar(16) NOT NULL,
    queue                 varchar(64) COLLATE "C" NOT NULL,
    priority              smallint NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 4),
    max_retries           bigint NOT NULL DEFAULT 0,
    backoff_policy        varchar(16) NOT NULL DEFAULT 'NONE',
    backoff_param_ms      bigint NOT NULL DEFAULT 0,
    timeout_ms            bigint,
    expires_at            timestamptz(3),
    -- `json`, not `jsonb`: the text stays as it was given.
    payload               json NOT NULL,
    target                varchar(255) COLLATE "C" NOT NULL,
    method                varchar(128) COLLATE "C" NOT NULL,
    params                json,
    on_success_payload    json,
    on_success_target     varchar(255) COLLATE "C",
    on_success_method     varchar(128) COLLATE "C",
    on_failure_payload    json,
    on_failure_target     varchar(255) COLLATE "C",
    on_failure_method     varchar(128) COLLATE "C",
    idempotency_key       varchar(255) COLLATE "C",
    business_key          varchar(255) COLLATE "C",
    resource_name         varchar(100) COLLATE "C",
    caller_principal      varchar(255) COLLATE "C",
    trace_context         varchar(512) COLLATE "C",
    batch_id              uuid,
    depends_on            uuid,
    superseded_by         uuid,
    created_at            timestamptz(3) NOT NULL,
    -- A schedule has a cold row alone: rec_status is A(ctive), P(aused), or null for every other job.
    cron_expr             text,
    zone_id               varchar(64),
    next_fire             timestamptz(3),
    rec_status            char(1) CHECK (rec_status IN ('A', 'P')),
    -- The last version of the queue row, so that a new one goes on from it: a fence never restarts.
    version               bigint NOT NULL DEFAULT 1,
    -- Set if and only if there is no queue row and the job has ended.
    terminal_status       varchar(16) CHECK (terminal_status IN ('SUCCEEDED', 'FAILED', 'CANCELED')),
    terminal_error        text,
    error_fingerprint     varchar(32),
    cancel_reason         text,
    -- Canceled because a parent refused, so that a retry of that parent brings it back.
    cancel_cascaded       boolean NOT NULL DEFAULT false,
    total_attempts        bigint NOT NULL DEFAULT 0,
    crash_count           bigint NOT NULL DEFAULT 0,
    blocked_by            bigint NOT NULL DEFAULT 0,
    open_parents          bigint NOT NULL DEFAULT 0,
    edge_count            bigint NOT NULL DEFAULT 0,
    scheduled_time        timestamptz(3),
    terminated_at         timestamptz(3),
    execution_start_time  timestamptz(3),
    execution_end_time    timestamptz(3),
    queue_wait_ms         bigint,
    job_result            json,
    progress              json
) WITH (fillfactor = 50);

-- Partial: a plain job appears in none of them.
CREATE INDEX idx_job_depends_on ON ratchet.scheduler_job (depends_on) WHERE depends_on IS NOT NULL;
CREATE INDEX idx_job_superseded_by ON ratchet.scheduler_job (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX idx_job_business_key ON ratchet.scheduler_job (business_key) WHERE business_key IS NOT NULL;
CREATE INDEX idx_job_batch ON ratchet.scheduler_job (batch_id, job_id) WHERE batch_id IS NOT NULL;
CREATE INDEX idx_job_recurring_pending ON ratchet.scheduler_job (rec_status, next_fire) WHERE rec_status IS NOT NULL;

-- The hot row: exists while the job lives, and holds all that a claim reads and an owner writes.
-- No foreign key: the transaction that writes one row writes the other.
CREATE TABLE ratchet.scheduler_job_queue (
    job_id             uuid PRIMARY KEY,
    status             varchar(16) NOT NULL CHECK (status IN ('PENDING', 'RUNNING', 'PAUSED')),
    job_type           varchar(16) NOT NULL,
    queue              varchar(64) COLLATE "C" NOT NULL,
    priority           smallint NOT NULL CHECK (priority BETWEEN 0 AND 4),
    scheduled_time     timestamptz(3) NOT NULL,
    business_key       varchar(255) COLLATE "C",
    timeout_ms         bigint,
    max_retries        bigint NOT NULL,
    expires_at         timestamptz(3),
    batch_id           uuid,
    attempts           bigint NOT NULL DEFAULT 0,
    crash_count        bigint NOT NULL DEFAULT 0,
    -- Parents that must still be satisfied, and parents that are not decided yet.
    blocked_by         bigint NOT NULL DEFAULT 0,
    open_parents       bigint NOT NULL DEFAULT 0,
    -- Edges that lead from this job: kept here, where the owner's write and a new edge meet on one row lock.
    edge_count         bigint NOT NULL DEFAULT 0,
    picked_by          varchar(64) COLLATE "C",
    picked_at          timestamptz(3),
    -- What it lacks that lies outside of it: `method:…` or `resource:…`. Claims pass it over for that.
    parked_on          text COLLATE "C",
    cancel_requested   boolean NOT NULL DEFAULT false,
    cancel_reason      text,
    paused_from_status varchar(16) CHECK (paused_from_status IN ('PENDING', 'FAILED')),
    last_error         text,
    progress           json,
    -- The fence.
    version            bigint NOT NULL DEFAULT 1,
    updated_at         timestamptz(3) NOT NULL,
    CHECK ((status = 'RUNNING') = (picked_by IS NOT NULL))
) WITH (
    -- Room for every row to be claimed on its own page.
    fillfactor = 45,
    -- Small and churning: vacuum by count, not by share, and without pauses.
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- The five heads of a queue. Running, paused, blocked and parked rows are not in it, so they never stand before them.
CREATE INDEX idx_claim_executable ON ratchet.scheduler_job_queue (queue, priority, scheduled_time, job_id)
    WHERE status = 'PENDING' AND blocked_by = 0 AND parked_on IS NULL;
-- The five heads of what is parked on one thing, and what of it has expired. Mostly empty.
CREATE INDEX idx_queue_parked ON ratchet.scheduler_job_queue (queue, parked_on, priority, scheduled_time, job_id)
    WHERE status = 'PENDING' AND blocked_by = 0 AND parked_on IS NOT NULL;
CREATE INDEX idx_queue_parked_expiry ON ratchet.scheduler_job_queue (queue, expires_at, job_id)
    WHERE status = 'PENDING' AND blocked_by = 0 AND parked_on IS NOT NULL AND expires_at IS NOT NULL;
-- What an owner holds: for `owned`, and for the dead whose jobs must be recovered.
CREATE INDEX idx_queue_orphan ON ratchet.scheduler_job_queue (picked_by, job_id) WHERE status = 'RUNNING';

-- Which live job or schedule holds a business key.
CREATE TABLE ratchet.scheduler_business_key_reservation (
    business_key varchar(255) COLLATE "C" NOT NULL,
    owner_job_id uuid NOT NULL,
    owner_table  varchar(16) NOT NULL CHECK (owner_table IN ('QUEUE', 'RECURRING')),
    reserved_at  timestamptz(3) NOT NULL,
    CONSTRAINT pk_scheduler_business_key_reservation PRIMARY KEY (business_key)
);

-- Every idempotency key that was ever used, by the hash of its bytes. Outlives the job and its archive record.
CREATE TABLE ratchet.scheduler_idempotency_key (
    key_hash   bytea PRIMARY KEY,
    job_id     uuid NOT NULL,
    created_at timestamptz(3) NOT NULL
);

CREATE TABLE ratchet.scheduler_job_tag (
    job_id uuid NOT NULL,
    tag    varchar(64) COLLATE "C" NOT NULL,
    place  bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (job_id, tag)
);
CREATE INDEX idx_job_tag ON ratchet.scheduler_job_tag (tag, job_id);

-- History. A row proves that the outcome of this fence was recorded.
CREATE TABLE ratchet.scheduler_job_execution (
    job_id        uuid NOT NULL,
    fence         bigint NOT NULL,
    node_id       varchar(64) COLLATE "C" NOT NULL,
    status        varchar(16) NOT NULL,
    attempt       bigint NOT NULL,
    started_at    timestamptz(3),
    recorded_at   timestamptz(3) NOT NULL,
    duration_ms   bigint,
    error_class   text,
    error_message text,
    PRIMARY KEY (job_id, fence)
);

CREATE TABLE ratchet.scheduler_job_log (
    log_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  uuid NOT NULL,
    fence   bigint NOT NULL,
    ts      timestamptz(3) NOT NULL,
    level   varchar(8) NOT NULL,
    message text NOT NULL
);
CREATE INDEX idx_job_log_job ON ratchet.scheduler_job_log (job_id, log_id);
CREATE INDEX idx_job_log_ts ON ratchet.scheduler_job_log (ts);

-- What waits for what.
CREATE TABLE ratchet.scheduler_job_edge (
    parent_id      uuid NOT NULL,
    child_id       uuid NOT NULL,
    edge_no        bigint GENERATED ALWAYS AS IDENTITY,
    condition_type varchar(32) NOT NULL,
    priority       integer NOT NULL DEFAULT 0,
    state          varchar(16) NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'SATISFIED', 'REFUSED')),
    PRIMARY KEY (parent_id, child_id)
);
CREATE INDEX idx_job_edge_child ON ratchet.scheduler_job_edge (child_id);

-- What an edge's condition compares with; success and failure compare with nothing and have no row.
CREATE TABLE ratchet.scheduler_workflow_condition (
    parent_id  uuid NOT NULL,
    child_id   uuid NOT NULL,
    expression json NOT NULL,
    PRIMARY KEY (parent_id, child_id),
    FOREIGN KEY (parent_id, child_id) REFERENCES ratchet.scheduler_job_edge ON DELETE CASCADE
);

-- A batch is known by its parent job.
CREATE TABLE ratchet.scheduler_batch (
    batch_id        uuid PRIMARY KEY,
    total_items     bigint NOT NULL,
    completed_items bigint NOT NULL DEFAULT 0,
    failed_items    bigint NOT NULL DEFAULT 0,
    closed          boolean NOT NULL,
    created_at      timestamptz(3) NOT NULL,
    completed_at    timestamptz(3)
) WITH (fillfactor = 50);

CREATE TABLE ratchet.scheduler_batch_metrics (
    batch_id           uuid PRIMARY KEY REFERENCES ratchet.scheduler_batch ON DELETE CASCADE,
    child_execution_ms bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE ratchet.scheduler_recurring_fire (
    master_id    uuid NOT NULL,
    fire_instant timestamptz(3) NOT NULL,
    job_id       uuid NOT NULL,
    created_at   timestamptz(3) NOT NULL,
    PRIMARY KEY (master_id, fire_instant)
);

CREATE TABLE ratchet.scheduler_node (
    node_id       varchar(64) COLLATE "C" PRIMARY KEY,
    label         text NOT NULL,
    node_version  text NOT NULL,
    methods       text[] NOT NULL,
    queues        text[] NOT NULL,
    started_at    timestamptz(3) NOT NULL,
    heartbeat_ts  timestamptz(3) NOT NULL,
    -- Since when it beats with no gap longer than this.
    beating_since timestamptz(3) NOT NULL,
    beat_gap_ms   bigint NOT NULL DEFAULT 0,
    lease_until   timestamptz(3) NOT NULL,
    reaped        boolean NOT NULL DEFAULT false,
    skew_ms       bigint NOT NULL DEFAULT 0,
    running       bigint NOT NULL DEFAULT 0,
    slots         bigint NOT NULL DEFAULT 0,
    draining      boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE ratchet.scheduler_queue_pause (
    queue     varchar(64) COLLATE "C" PRIMARY KEY,
    paused_at timestamptz(3) NOT NULL
);

-- The row of a lock stays when the lock is free: its term never restarts.
CREATE TABLE ratchet.scheduler_lock (
    lock_name  varchar(128) COLLATE "C" PRIMARY KEY,
    owner_node varchar(64) COLLATE "C",
    term       bigint NOT NULL,
    locked_at  timestamptz(3) NOT NULL,
    expires_at timestamptz(3) NOT NULL
);

CREATE TABLE ratchet.scheduler_resource_limit (
    resource_name  varchar(100) COLLATE "C" PRIMARY KEY,
    max_concurrent bigint NOT NULL,
    retry_delay_ms bigint NOT NULL DEFAULT 5000,
    updated_at     timestamptz(3) NOT NULL
);

CREATE TABLE ratchet.scheduler_resource_permit (
    resource_name varchar(100) COLLATE "C" NOT NULL,
    job_id        uuid NOT NULL,
    node_id       varchar(64) COLLATE "C" NOT NULL,
    acquired_at   timestamptz(3) NOT NULL,
    PRIMARY KEY (job_id, resource_name)
);
CREATE INDEX idx_permit_resource ON ratchet.scheduler_resource_permit (resource_name);

CREATE TABLE ratchet.scheduler_dlq_alert (
    alert_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id        uuid NOT NULL,
    error_hash    varchar(64) NOT NULL,
    fingerprint   varchar(32) NOT NULL,
    alert_sent_at timestamptz(3) NOT NULL
);
CREATE INDEX idx_dlq_alert_job ON ratchet.scheduler_dlq_alert (job_id, error_hash, alert_sent_at);

-- Since when like errors were told about, and how many there were since.
CREATE TABLE ratchet.scheduler_dlq_alert_group (
    fingerprint varchar(32) PRIMARY KEY,
    told_at     timestamptz(3) NOT NULL,
    alert_count bigint NOT NULL
);

CREATE TABLE ratchet.scheduler_job_archive (
    original_job_id uuid PRIMARY KEY,
    final_status    varchar(16) NOT NULL,
    job_type        varchar(16) NOT NULL,
    priority        smallint NOT NULL,
    queue           varchar(64) COLLATE "C" NOT NULL,
    payload         json NOT NULL,
    target          varchar(255) COLLATE "C" NOT NULL,
    method          varchar(128) COLLATE "C" NOT NULL,
    business_key    varchar(255) COLLATE "C",
    tags            text[] NOT NULL,
    total_attempts  bigint NOT NULL,
    final_error     text,
    job_result      json,
    created_at      timestamptz(3) NOT NULL,
    terminated_at   timestamptz(3) NOT NULL,
    archived_at     timestamptz(3) NOT NULL
);
CREATE INDEX idx_archive_target ON ratchet.scheduler_job_archive (target, original_job_id);
CREATE INDEX idx_archive_business_key ON ratchet.scheduler_job_archive (business_key, original_job_id)
    WHERE business_key IS NOT NULL;
CREATE INDEX idx_archive_archived_at ON ratchet.scheduler_job_archive (archived_at);

-- A job as readers see it: both rows, and the one status that follows from them.
CREATE VIEW ratchet.vw_jobs AS
SELECT
    j.job_id, j.job_type, j.queue, j.priority, j.max_retries, j.backoff_policy, j.backoff_param_ms, j.timeout_ms,
    j.expires_at, j.payload::text AS payload, j.target, j.method, j.params::text AS params,
    j.on_success_payload::text AS on_success_payload, j.on_success_target, j.on_success_method,
    j.on_failure_payload::text AS on_failure_payload, j.on_failure_target, j.on_failure_method,
    j.idempotency_key, j.business_key, j.resource_name, j.caller_principal, j.trace_context, j.batch_id,
    j.depends_on, j.superseded_by, j.created_at, j.cron_expr, j.zone_id, j.next_fire, j.rec_status,
    ARRAY(SELECT t.tag FROM ratchet.scheduler_job_tag t WHERE t.job_id = j.job_id ORDER BY t.place) AS tags,
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
    (CASE WHEN q.job_id IS NULL THEN j.progress ELSE q.progress END)::text AS progress,
    coalesce(q.cancel_requested, false) AS cancel_requested,
    j.terminal_status, j.error_fingerprint, j.terminated_at, j.execution_start_time, j.execution_end_time,
    j.queue_wait_ms, j.job_result::text AS job_result
FROM ratchet.scheduler_job j
LEFT JOIN ratchet.scheduler_job_queue q ON q.job_id = j.job_id;

-- Recorded as the migrator would have done. `cargo xtask fix` keeps the checksums.
INSERT INTO ratchet.ratchet_schema_version (version, applied_at, description, checksum)
VALUES ('001', date_trunc('milliseconds', clock_timestamp()), 'baseline', 'f635c8e688d898dd960970614558ed90d4fa2df61cde1c3a477180c7a39d2b27');
