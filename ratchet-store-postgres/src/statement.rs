//! Statements: one file each, compiled once for a schema, bound by name.

use ratchet_api::StoreResult;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Arguments as _, Encode, Postgres, SqlStr, Type};

use crate::error::classify;
use crate::params::compile;
use crate::schema::Schema;
use crate::session::Session;

/// A statement, ready for one schema.
pub(crate) struct Statement {
    sql: SqlStr,
    /// The names behind `$1`, `$2`, …
    params: Vec<String>,
}

impl Statement {
    /// Compiles a text that was written for the schema `ratchet` with `:name` parameters.
    fn compile(text: &'static str, schema: &Schema) -> Self {
        let (sql, params) = compile(text, schema);
        Self { sql, params }
    }

    /// Starts binding values.
    pub(crate) fn bind(&self) -> Bound<'_> {
        Bound { statement: self, args: PgArguments::default(), failure: None }
    }
}

/// A statement with its values. Names are given in the order in which the text first mentions them, and checked,
/// so that no two values of one type can change places unnoticed.
#[must_use]
pub(crate) struct Bound<'s> {
    statement: &'s Statement,
    args: PgArguments,
    failure: Option<sqlx::error::BoxDynError>,
}

impl Bound<'_> {
    /// Binds the next parameter, which must be called `name`.
    pub(crate) fn arg<'t, T>(mut self, name: &str, value: T) -> Self
    where
        T: Encode<'t, Postgres> + Type<Postgres>,
    {
        let next = self.statement.params.get(self.args.len()).map(String::as_str);
        debug_assert_eq!(
            next,
            Some(name),
            "parameter {} of {}",
            self.args.len() + 1,
            self.statement.sql.as_str()
        );
        if let Err(error) = self.args.add(value) {
            self.failure.get_or_insert(error);
        }
        self
    }

    /// Runs it and reads every row.
    pub(crate) async fn rows(self, session: &mut Session<'_>) -> StoreResult<Vec<PgRow>> {
        let op = session.op();
        let query = self.into_query().map_err(|error| classify(op, error))?;
        query.fetch_all(session.connection()).await.map_err(|error| classify(op, error))
    }

    /// Runs it and reads the row that it gives whatever happens.
    pub(crate) async fn row(self, session: &mut Session<'_>) -> StoreResult<PgRow> {
        let op = session.op();
        let query = self.into_query().map_err(|error| classify(op, error))?;
        query.fetch_one(session.connection()).await.map_err(|error| classify(op, error))
    }

    /// Runs it and answers how many rows it changed.
    pub(crate) async fn run(self, session: &mut Session<'_>) -> StoreResult<u64> {
        let op = session.op();
        let query = self.into_query().map_err(|error| classify(op, error))?;
        let done = query.execute(session.connection()).await.map_err(|error| classify(op, error))?;
        Ok(done.rows_affected())
    }

    fn into_query(self) -> Result<Query<'static, Postgres, PgArguments>, sqlx::Error> {
        debug_assert_eq!(self.args.len(), self.statement.params.len(), "{}", self.statement.sql.as_str());
        match self.failure {
            Some(failure) => Err(sqlx::Error::Encode(failure)),
            None => Ok(sqlx::query_with(self.statement.sql.clone(), self.args)),
        }
    }
}

/// Lists every statement: `name: "area/file.sql";`
macro_rules! statements {
    ($($name:ident: $file:literal;)*) => {
        /// Every statement of the store, by name.
        pub(crate) struct Statements { $(pub(crate) $name: Statement),* }

        impl Statements {
            /// Compiles them all for one schema.
            pub(crate) fn compile(schema: &Schema) -> Self {
                Self { $($name: Statement::compile(include_str!(concat!("../queries/", $file)), schema)),* }
            }
        }
    };
}

statements! {
    now: "info/now.sql";

    find: "job/find.sql";
    load: "job/load.sql";
    find_by_idempotency_key: "job/find_by_idempotency_key.sql";
    find_by_business_key: "job/find_by_business_key.sql";
    hold: "job/hold.sql";
    hold_cold: "job/hold_cold.sql";
    end_waiting: "job/end_waiting.sql";

    insert_jobs: "insert/jobs.sql";
    undo_keys: "insert/undo_keys.sql";
    look: "insert/look.sql";

    claim: "claim/claim.sql";
    owned: "claim/owned.sql";
    pick_up: "claim/pick_up.sql";

    settle: "commit/settle.sql";
    recorded: "commit/recorded.sql";

    decide_edges: "edge/decide.sql";
    settle_children: "edge/settle_children.sql";
    edges_from: "edge/from.sql";
    edges_to: "edge/to.sql";
    insert_edges: "edge/insert.sql";

    hold_batches: "batch/hold.sql";
    update_batches: "batch/update.sql";
    insert_batch: "batch/insert.sql";

    join: "node/join.sql";
    beat: "node/beat.sql";
    recover: "node/recover.sql";
    leave: "node/leave.sql";
    holds_jobs: "node/holds_jobs.sql";
    nodes: "node/list.sql";
    purge_nodes: "node/purge.sql";

    request_cancel: "control/request_cancel.sql";
    pause_waiting: "control/pause_waiting.sql";
    resume_waiting: "control/resume_waiting.sql";
    resume_failed: "control/resume_failed.sql";
    set_schedule_paused: "control/set_schedule_paused.sql";
    reserve_keys: "control/reserve_keys.sql";
    revive: "control/revive.sql";
    start_over: "control/start_over.sql";
    reopen_edges: "control/reopen_edges.sql";
    pause_queue: "control/pause_queue.sql";
    resume_queue: "control/resume_queue.sql";
    paused_queues: "control/paused_queues.sql";

    report_progress: "job/report_progress.sql";

    find_batches: "batch/find.sql";
    batch_children: "batch/children.sql";
    batch_metrics: "batch/metrics.sql";
    batches: "batch/list.sql";

    hold_limits: "permit/hold_limits.sql";
    permit_holders: "permit/holders.sql";
    grant_permits: "permit/grant.sql";
    configure_resource: "permit/configure.sql";
    resources: "permit/list.sql";

    try_lock: "lock/try_lock.sql";
    renew_lock: "lock/renew.sql";
    unlock: "lock/unlock.sql";

    executions: "record/executions.sql";
    append_logs: "record/append_logs.sql";
    logs: "record/logs.sql";
    purge_logs: "record/purge_logs.sql";
    add_tags: "record/add_tags.sql";
    remove_tags: "record/remove_tags.sql";
    jobs_by_tag: "record/jobs_by_tag.sql";
    hold_alert_groups: "record/hold_alert_groups.sql";
    latest_alerts: "record/latest_alerts.sql";
    insert_alerts: "record/insert_alerts.sql";
    alerts: "record/alerts.sql";

    query_jobs: "query/jobs.sql";
    queue_health: "query/queue_health.sql";
    dead_letters: "query/dead_letters.sql";

    archive: "archive/archive.sql";
    archived: "archive/list.sql";
    purge_archive: "archive/purge.sql";
    delete: "archive/delete.sql";
    purge_dead_letters: "archive/purge_dead_letters.sql";

    make_schedule: "recurring/make.sql";
    update_schedule: "recurring/update.sql";
    due_recurring: "recurring/due.sql";
    cancel_matching: "recurring/cancel_matching.sql";
    recurring: "recurring/list.sql";
    cancel_schedules: "recurring/cancel.sql";
    fired: "recurring/fired.sql";
    has_fired: "recurring/has_fired.sql";
}
