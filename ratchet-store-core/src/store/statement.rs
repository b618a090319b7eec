//! Statements: one file each, compiled once for a dialect and a namespace, bound by name.

use ratchet_api::{JobId, StoreError, StoreErrorKind, StoreResult};

use super::row::{Cells, read_all};
use super::session::Session;
use crate::driver::Row;
use crate::value::{IntoValue, Values};
use crate::{Dialect, Namespace, Statement, TextError};

/// A file of statements that run one after the other with the same values. The last one returns the rows.
pub(crate) struct Query {
    name: &'static str,
    statements: Vec<Statement>,
    /// All of them as one text with a transaction around them, where the driver takes a whole text at once.
    alone: Option<Statement>,
}

impl Query {
    fn compile(
        name: &'static str,
        text: &'static str,
        dialect: Dialect,
        namespace: &Namespace,
        begin: Option<&'static str>,
    ) -> Result<Self, TextError> {
        if dialect.takes_whole_texts() {
            let whole = Statement::compile(text, dialect, namespace)?;
            let alone = begin.map(|begin| whole.within(begin));
            return Ok(Self { name, statements: vec![whole], alone });
        }
        Ok(Self { name, statements: Statement::compile_all(text, dialect, namespace)?, alone: None })
    }

    /// Starts binding values.
    pub(crate) fn bind<'v>(&'v self) -> Bound<'v> {
        Bound { query: self, values: Values::default() }
    }
}

/// A query with its values.
#[must_use]
pub(crate) struct Bound<'v> {
    query: &'v Query,
    values: Values<'v>,
}

impl<'v> Bound<'v> {
    /// Sets the value of the parameter `name`.
    pub(crate) fn arg(mut self, name: &'static str, value: impl IntoValue<'v>) -> Self {
        self.values.push(name, value.into_value());
        self
    }

    /// Runs it and reads every row.
    pub(crate) async fn rows(self, session: &mut Session<'_>) -> StoreResult<Vec<Box<dyn Row>>> {
        let last = self.all_but_last(session).await?;
        let values = self.values.bound(last, session.dialect())?;
        let rows = session.connection().fetch(last, &values).await;
        rows.map_err(|error| session.classify(error))
    }

    /// Runs it and reads each row as it arrives, until one cannot be read.
    pub(crate) async fn each(
        self,
        session: &mut Session<'_>,
        mut read: impl FnMut(Cells<'_>) -> StoreResult<()> + Send,
    ) -> StoreResult<()> {
        let last = self.all_but_last(session).await?;
        let values = self.values.bound(last, session.dialect())?;
        let mut outcome = Ok(());
        let mut show = |row: &dyn Row| {
            if outcome.is_ok() {
                outcome = read(Cells(row));
            }
        };
        let shown = session.connection().each(last, &values, &mut show).await;
        shown.map_err(|error| session.classify(error))?;
        outcome
    }

    /// Runs it and reads the job that each row names.
    pub(crate) async fn jobs(self, session: &mut Session<'_>) -> StoreResult<Vec<JobId>> {
        let rows = self.rows(session).await?;
        read_all(session.op(), &rows, |cells| cells.get("job_id"))
    }

    /// Runs it and reads the one row that it always returns.
    pub(crate) async fn row(self, session: &mut Session<'_>) -> StoreResult<Box<dyn Row>> {
        let name = self.query.name;
        let row = self.rows(session).await?.into_iter().next();
        row.ok_or_else(|| {
            StoreError::new(StoreErrorKind::Other, session.op(), format!("statement {name} gave no row"))
        })
    }

    /// Runs it and returns how many rows it changed.
    pub(crate) async fn run(self, session: &mut Session<'_>) -> StoreResult<u64> {
        let last = self.all_but_last(session).await?;
        let values = self.values.bound(last, session.dialect())?;
        let changed = session.connection().execute(last, &values).await;
        changed.map_err(|error| session.classify(error))
    }

    /// Runs every statement before the last.
    async fn all_but_last(&self, session: &mut Session<'_>) -> StoreResult<&'v Statement> {
        if let Some(alone) = self.query.alone.as_ref().filter(|_| session.is_alone()) {
            return Ok(alone);
        }
        let Some((last, before)) = self.query.statements.split_last() else {
            let empty = format!("statement {} is empty", self.query.name);
            return Err(StoreError::new(StoreErrorKind::Other, session.op(), empty));
        };
        for statement in before {
            let values = self.values.bound(statement, session.dialect())?;
            let done = session.connection().execute(statement, &values).await;
            done.map_err(|error| session.classify(error))?;
        }
        Ok(last)
    }
}

/// Lists every statement: `name: "area/file.sql";`
macro_rules! statements {
    ($($name:ident: $file:literal;)*) => {
        /// The text of every statement, in one dialect. [`texts!`](crate::texts) reads them from their files.
        #[derive(Clone, Debug)]
        pub struct Texts {
            $(#[doc = concat!("The text of `queries/", $file, "`.")] pub $name: &'static str),*
        }

        /// Every statement of the store, by name.
        pub(crate) struct Statements { $(pub(crate) $name: Query),* }

        impl Statements {
            /// Compiles all of them; `begin` begins a transaction around one.
            pub(crate) fn compile(
                texts: &Texts,
                dialect: Dialect,
                namespace: &Namespace,
                begin: Option<&'static str>,
            ) -> Result<Self, TextError> {
                Ok(Self { $($name: Query::compile(stringify!($name), texts.$name, dialect, namespace, begin)?),* })
            }
        }

        /// The [`Texts`](crate::Texts) in the directory `queries` of the crate that calls it. A file that is not
        /// there is a compile error.
        #[macro_export]
        macro_rules! texts {
            () => {
                $crate::Texts {
                    $($name: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/queries/", $file))),*
                }
            };
        }
    };
}

statements! {
    now: "info/now.sql";

    find: "job/find.sql";
    load: "job/load.sql";
    find_by_idempotency_key: "job/find_by_idempotency_key.sql";
    find_by_business_key: "job/find_by_business_key.sql";
    lock_rows: "job/lock.sql";
    lock_cold: "job/lock_cold.sql";
    end_waiting: "job/end_waiting.sql";
    end_corrupt: "job/end_corrupt.sql";

    insert_jobs: "insert/jobs.sql";
    insert_bare: "insert/bare.sql";
    undo_keys: "insert/undo_keys.sql";
    look: "insert/look.sql";

    claim: "claim/claim.sql";
    pull: "claim/pull.sql";
    pick_up_parked: "claim/parked.sql";
    owned: "claim/owned.sql";
    pick_up: "claim/pick_up.sql";
    unreachable: "claim/unreachable.sql";

    settle: "commit/settle.sql";
    succeed: "commit/succeed.sql";
    recorded: "commit/recorded.sql";

    decide_edges: "edge/decide.sql";
    settle_children: "edge/settle_children.sql";
    edges_from: "edge/from.sql";
    edges_to: "edge/to.sql";
    insert_edges: "edge/insert.sql";

    lock_batches: "batch/lock.sql";
    update_batches: "batch/update.sql";
    insert_batch: "batch/insert.sql";

    join: "node/join.sql";
    beat: "node/beat.sql";
    pulses: "node/pulses.sql";
    recover: "node/recover.sql";
    leave: "node/leave.sql";
    holds_jobs: "node/holds_jobs.sql";
    nodes: "node/list.sql";
    purge_nodes: "node/purge.sql";

    clock_back_due: "clock/due.sql";
    clock_back_nodes: "clock/nodes.sql";

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

    lock_limits: "permit/lock_limits.sql";
    permits_in_use: "permit/in_use.sql";
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
    lock_alert_groups: "record/lock_alert_groups.sql";
    latest_alerts: "record/latest_alerts.sql";
    insert_alerts: "record/insert_alerts.sql";
    alerts: "record/alerts.sql";

    query_jobs: "query/jobs.sql";
    queue_health: "query/queue_health.sql";
    parkings: "query/parkings.sql";
    dead_letters: "query/dead_letters.sql";

    choose_old: "archive/choose_old.sql";
    choose_dead_letters: "archive/choose_dead_letters.sql";
    choose_ended: "archive/choose_ended.sql";
    archive: "archive/archive.sql";
    remove: "archive/remove.sql";
    archived: "archive/list.sql";
    purge_archive: "archive/purge.sql";

    make_schedule: "recurring/make.sql";
    update_schedule: "recurring/update.sql";
    due_recurring: "recurring/due.sql";
    cancel_matching: "recurring/cancel_matching.sql";
    recurring: "recurring/list.sql";
    cancel_schedules: "recurring/cancel.sql";
    fired: "recurring/fired.sql";
    has_fired: "recurring/has_fired.sql";
}
