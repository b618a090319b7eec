//! The ways in which SQLite finds rows: by keys and indexes, and never by sorting everything that is due.

mod common;

use common::job;
use ratchet_api::Submission;
use ratchet_api::store::JobBulkStore as _;
use ratchet_store_core::{Dialect, Namespace, Statement};
use ratchet_store_sqlite::SqliteStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _, SqliteConnection};
use tempfile::TempDir;

const CHOOSE_BEST: &str = include_str!("../queries/connect/choose_best.sql");
const SCRATCH_TABLES: &str = include_str!("../queries/connect/tables.sql");

/// The scripts that carry the load.
const HOT: [&str; 5] = [
    include_str!("../queries/insert/jobs.sql"),
    include_str!("../queries/claim/claim.sql"),
    include_str!("../queries/job/load.sql"),
    include_str!("../queries/commit/settle.sql"),
    include_str!("../queries/node/recover.sql"),
];

/// The scripts that read what an owner holds, alive or dead.
const BY_OWNER: [&str; 3] = [
    include_str!("../queries/claim/owned.sql"),
    include_str!("../queries/node/holds_jobs.sql"),
    include_str!("../queries/node/recover.sql"),
];

/// A file with jobs in it, and a connection for `EXPLAIN`.
async fn place(jobs: usize) -> (TempDir, SqliteConnection) {
    let dir = TempDir::new().expect("there is room for files");
    let file = dir.path().join("jobs.db");
    let store = SqliteStore::open(&file).await.expect("it opens");
    let submissions: Vec<Submission> =
        std::iter::repeat_with(|| Submission::single(job())).take(jobs).collect();
    store.insert(&submissions).await.expect("they are stored");
    store.close().await;
    let mut connection = SqliteConnectOptions::new().filename(file).connect().await.expect("it opens");
    sqlx::raw_sql(SCRATCH_TABLES).execute(&mut connection).await.expect("there are tables");
    (dir, connection)
}

async fn plan(connection: &mut SqliteConnection, sql: &str) -> Vec<String> {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::raw_sql(explain).fetch_all(connection).await.expect("a plan");
    rows.iter().map(|row| row.get("detail")).collect()
}

/// The query of the trigger, with parameters in the place of its row.
fn heads() -> String {
    let trigger = Statement::compile(CHOOSE_BEST, Dialect::Sqlite, &Namespace::bare()).expect("a text");
    let sql = trigger.sql();
    let (_, select) = sql.as_str().split_once("(job_id, now)").expect("an insert");
    let (select, _) = select.rsplit_once(';').and_then(|(body, _)| body.rsplit_once(';')).expect("an end");
    select.replace("new.", ":")
}

#[tokio::test]
async fn the_claim_reads_five_index_heads_and_sorts_nothing_else() {
    const HEAD: &str = "SEARCH q USING COVERING INDEX idx_claim_executable \
                        (queue=? AND priority=? AND scheduled_time<?)";
    for jobs in [0, 2_000] {
        let (_dir, mut connection) = place(jobs).await;
        for analyzed in [false, true] {
            if analyzed {
                sqlx::raw_sql("ANALYZE").execute(&mut connection).await.expect("statistics");
            }
            let plan = plan(&mut connection, &heads()).await;
            let lines = |text: &str| plan.iter().filter(|line| line.contains(text)).count();
            assert_eq!(lines(HEAD), 5, "{plan:#?}");
            assert_eq!(lines("scheduler_job_queue") + lines("SCAN q"), 0, "{plan:#?}");
            // The heads themselves, at most five times the limit, are put in order once.
            assert_eq!(lines("USE TEMP B-TREE"), 1, "{plan:#?}");
        }
    }
}

#[tokio::test]
async fn the_scripts_that_carry_the_load_read_no_table_from_end_to_end() {
    for analyzed in [false, true] {
        let (_dir, mut connection) = place(2_000).await;
        if analyzed {
            sqlx::raw_sql("ANALYZE").execute(&mut connection).await.expect("statistics");
        }
        for script in HOT {
            let steps = Statement::compile_all(script, Dialect::Sqlite, &Namespace::bare()).expect("a text");
            for step in steps {
                let plan = plan(&mut connection, step.sql().as_str()).await;
                let whole = |line: &&String| {
                    ["SCAN j", "SCAN q", "SCAN n", "SCAN scheduler"].iter().any(|scan| line.starts_with(scan))
                };
                assert_eq!(plan.iter().find(whole), None, "{}\n{plan:#?}", step.sql().as_str());
            }
        }
    }
}

// shows: S138
#[tokio::test]
async fn what_an_owner_holds_is_found_by_the_index_of_running_rows() {
    const LOOK: &str = "SEARCH q USING INDEX idx_queue_orphan (picked_by=?)";
    const COVERED: &str = "SEARCH q USING COVERING INDEX idx_queue_orphan (picked_by=?)";
    for jobs in [0, 2_000] {
        let (_dir, mut connection) = place(jobs).await;
        for script in BY_OWNER {
            let steps = Statement::compile_all(script, Dialect::Sqlite, &Namespace::bare()).expect("a text");
            let mut plans = Vec::new();
            for step in steps {
                plans.extend(plan(&mut connection, step.sql().as_str()).await);
            }
            let looks = plans.iter().filter(|line| [LOOK, COVERED].contains(&line.as_str()));
            assert_eq!(looks.count(), 1, "{plans:#?}");
        }
    }
}
