//! The plans of the statements that carry the load, on a real server, whatever its statistics say about the tables.
//!
//! A claim and a commit must cost in proportion to what they take, not to what the table holds. Here their statements
//! run as the store compiles them, both with the custom plan for the values at hand, which a connection starts with,
//! and with the generic plan, which it settles on after some executions.

mod common;

use std::collections::HashMap;
use std::fmt;

use common::node::{Node, until};
use common::url;
use ratchet_api::store::JobClaimStore as _;
use ratchet_store_core::{Dialect, Statement};
use ratchet_store_postgres::{Pooler, PostgresOptions};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};

const CLAIM: &str = include_str!("../queries/claim/claim.sql");
const LOAD: &str = include_str!("../queries/job/load.sql");
const FIND: &str = include_str!("../queries/job/find.sql");
const SETTLE: &str = include_str!("../queries/commit/settle.sql");
const SUCCEED: &str = include_str!("../queries/commit/succeed.sql");
const QUERY: &str = include_str!("../queries/query/jobs.sql");
const OWNED: &str = include_str!("../queries/claim/owned.sql");
const RECOVER: &str = include_str!("../queries/node/recover.sql");
const CHOOSE_OLD: &str = include_str!("../queries/archive/choose_old.sql");
const CHOOSE_DEAD_LETTERS: &str = include_str!("../queries/archive/choose_dead_letters.sql");
const ARCHIVE: &str = include_str!("../queries/archive/archive.sql");
const REMOVE: &str = include_str!("../queries/archive/remove.sql");

const JOBS: usize = 20_000;
const LIMIT: usize = 50;
const OUTCOMES: usize = 200;
/// How many heads a claim reads beyond its limit: none at first, more if others hold those that it found.
const SPARE: [usize; 2] = [0, 16];

const MODES: [&str; 2] = ["force_custom_plan", "force_generic_plan"];

/// The server's knowledge of tables that are full.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// Nothing.
    Nothing,
    /// That they were empty once.
    Emptiness,
    /// That all their pages were empty once: then it believes so of every page that they still have.
    EmptyPages,
    /// Everything.
    Everything,
}

const KNOWN: [Known; 4] = [Known::Nothing, Known::Emptiness, Known::EmptyPages, Known::Everything];

#[tokio::test]
async fn a_claim_reads_heads_from_the_claim_index_and_takes_them_by_their_place() {
    for known in KNOWN {
        let node = filled(known).await;
        for levels in [1, 2] {
            if levels == 2 {
                let raised = sqlx::raw_sql(RAISE_SOME).execute(&mut node.session().await).await;
                raised.expect("they are raised");
            }
            for (mode, spare) in MODES.into_iter().flat_map(|mode| SPARE.map(|spare| (mode, spare))) {
                let plan = explain(&node, mode, CLAIM, &claim_values(&node, spare)).await;
                let queue = plan.scans("scheduler_job_queue");
                // For each queue, one look at an empty index tells whether anything is parked.
                let (probes, queue): (Vec<_>, Vec<_>) =
                    queue.partition(|scan| scan.index == "idx_queue_parked" && scan.rows == 0);
                assert_eq!(probes.len(), 1, "{known:?}, {mode}:\n{plan}");
                let queue = queue.into_iter();
                let (by_order, by_place): (Vec<_>, Vec<_>) =
                    queue.partition(|scan| scan.index == "idx_claim_executable");
                // Three steps: which levels have something, the heads of several, and the rows of only one.
                assert_eq!(by_order.len(), 3, "{known:?}, {mode}:\n{plan}");
                plan.expect_all(by_place.into_iter(), |scan| scan.what == "Tid Scan");
                // At most so many rows of each priority.
                plan.expect_all(plan.0.iter(), |step| step.rows <= 5 * (LIMIT + spare));
            }
        }
        node.close().await;
    }
}

/// Makes jobs of two priorities due.
const RAISE_SOME: &str = "UPDATE scheduler_job_queue SET priority = 4 \
    WHERE job_id IN (SELECT job_id FROM scheduler_job_queue ORDER BY job_id LIMIT 100)";

#[tokio::test]
async fn a_job_and_its_outcome_find_their_rows_by_primary_key() {
    for known in KNOWN {
        let node = filled(known).await;
        let claims = node.claim(JOBS).await;
        if known == Known::Everything {
            look(&node).await;
        }
        let ids: Vec<(String, String)> = claims
            .iter()
            .map(|claim| (claim.id.to_string(), claim.fence.to_string()))
            .take(OUTCOMES)
            .collect();
        for (mode, text) in
            MODES.into_iter().flat_map(|mode| [FIND, SETTLE, SUCCEED].map(|text| (mode, text)))
        {
            let plan = explain(&node, mode, text, &settle_values(&node, &ids)).await;
            plan.expect_all(plan.scans("scheduler_job_queue"), |scan| {
                scan.index == "scheduler_job_queue_pkey"
            });
            plan.expect_all(plan.scans("scheduler_job"), |scan| scan.index == "scheduler_job_pkey");
            plan.expect_all(plan.0.iter(), |step| step.rows <= OUTCOMES);
        }
        for mode in MODES {
            let plan = explain(&node, mode, LOAD, &settle_values(&node, &ids)).await;
            // All ids may be collected from the index first, which still has the row version that the claim replaced.
            let by_key = ["scheduler_job_queue_pkey", "scheduler_job_pkey"];
            plan.expect_all(plan.scans("scheduler_job_queue"), |scan| {
                by_key.contains(&scan.index.as_str()) || scan.what == "Bitmap Heap Scan"
            });
            plan.expect_all(plan.0.iter().filter(|step| step.what == "Bitmap Index Scan"), |step| {
                step.index != "idx_claim_executable" && step.index != "idx_queue_orphan"
            });
            plan.expect_all(plan.scans("scheduler_job"), |scan| scan.index == "scheduler_job_pkey");
            plan.expect_all(plan.0.iter(), |step| step.rows <= 2 * OUTCOMES);
        }
        node.close().await;
    }
}

// shows: S138
#[tokio::test]
async fn what_an_owner_holds_is_found_by_the_index_of_running_rows() {
    for known in KNOWN {
        let node = filled(known).await;
        node.claim(LIMIT).await;
        let owner = Some(node.owner.to_string());
        let dead = Some(array([&node.owner]));
        let heir = Some("heir".to_owned());
        let owned = Values::from([("now", None), ("owner", owner)]);
        let recover =
            Values::from([("now", None), ("owner", heir), ("dead", dead), ("lim", Some("50".into()))]);
        for (mode, (text, values)) in
            MODES.into_iter().flat_map(|mode| [(mode, (OWNED, &owned)), (mode, (RECOVER, &recover))])
        {
            let plan = explain(&node, mode, text, values).await;
            let by_owner = plan.scans("scheduler_job_queue").filter(|scan| scan.index == "idx_queue_orphan");
            assert_eq!(by_owner.count(), 1, "{known:?}, {mode}:\n{plan}");
            plan.expect_all(plan.scans("scheduler_job_queue"), |scan| scan.what != "Seq Scan");
            plan.expect_all(plan.0.iter(), |step| step.rows <= LIMIT);
        }
        node.close().await;
    }
}

/// A reader of all pages reads each row once, also while the jobs of earlier pages change.
#[tokio::test]
async fn a_page_of_jobs_goes_down_the_primary_key() {
    for known in KNOWN {
        let node = filled(known).await;
        let middle =
            sqlx::query_scalar("SELECT job_id::text FROM scheduler_job ORDER BY job_id OFFSET $1 LIMIT 1");
        let middle = middle.bind((JOBS / 2) as i64).fetch_one(&mut node.session().await).await;
        let values = query_values(middle.expect("there are so many"));
        for mode in MODES {
            let plan = explain(&node, mode, QUERY, &values).await;
            plan.expect_all(plan.scans("scheduler_job_queue"), |scan| {
                scan.index == "scheduler_job_queue_pkey"
            });
            plan.expect_all(plan.scans("scheduler_job"), |scan| scan.index == "scheduler_job_pkey");
            plan.expect_all(plan.0.iter(), |step| step.rows <= LIMIT);
        }
        node.close().await;
    }
}

/// One batch of archiving costs in proportion to what it moves, not to what there is to move.
#[tokio::test]
async fn old_jobs_are_chosen_from_the_head_of_the_primary_key_and_removed_by_key() {
    const END: &str = "DELETE FROM scheduler_job_queue; \
        UPDATE scheduler_job SET terminal_status = 'FAILED', terminated_at = created_at - interval '1 hour'";
    for known in KNOWN {
        let node = filled(known).await;
        sqlx::raw_sql(END).execute(&mut node.session().await).await.expect("they end");
        if known == Known::Everything {
            look(&node).await;
        }
        let ids = sqlx::query_scalar("SELECT job_id::text FROM scheduler_job ORDER BY job_id LIMIT $1");
        let ids: Vec<String> =
            ids.bind(LIMIT as i64).fetch_all(&mut node.session().await).await.expect("there are jobs");
        let (zero, limit) = (Some("0".to_owned()), Some(LIMIT.to_string()));
        let values = Values::from([
            ("now", None),
            ("failed_ms", zero.clone()),
            ("ended_ms", zero.clone()),
            ("retention_ms", zero),
            ("lim", limit),
            ("job_ids", Some(array(ids))),
        ]);
        let texts = [CHOOSE_OLD, CHOOSE_DEAD_LETTERS, ARCHIVE, REMOVE];
        for (mode, text) in MODES.into_iter().flat_map(|mode| texts.map(|text| (mode, text))) {
            let plan = explain(&node, mode, text, &values).await;
            plan.expect_all(plan.scans("scheduler_job"), |scan| {
                scan.index == "scheduler_job_pkey" || scan.what == "Bitmap Heap Scan"
            });
            // The index still has the row versions that were updated.
            plan.expect_all(plan.0.iter(), |step| step.rows <= 2 * LIMIT);
        }
        node.close().await;
    }
}

/// The server plans a statement for each call as long as it estimates that a generic plan would be dearer.
#[tokio::test]
async fn calls_for_one_job_are_not_planned_each_time() {
    const CALLS: i64 = 10;
    let node = filled(Known::Everything).await;
    let claim = node.claim(1).await.remove(0);
    let values = settle_values(&node, &[(claim.id.to_string(), claim.fence.to_string())]);
    for text in [CLAIM, LOAD, FIND, SETTLE, SUCCEED] {
        let mut connection = node.session().await;
        let values = if text == CLAIM { &claim_values(&node, 0) } else { &values };
        let execute = prepare(&mut connection, &node, text, values).await;
        for _ in 0..CALLS {
            let run = sqlx::raw_sql(AssertSqlSafe(execute.clone()));
            run.execute(&mut connection).await.expect("the statement runs");
        }
        let planned =
            sqlx::query_scalar("SELECT custom_plans FROM pg_prepared_statements WHERE name = 'measured'");
        let planned: i64 = planned.fetch_one(&mut connection).await.expect("the server counts");
        assert!(planned < CALLS, "{text}");
    }
    node.close().await;
}

/// A node that polls in vain has its claim planned for empty tables: then reading all of them would cost nothing.
#[tokio::test]
async fn a_plan_from_the_time_when_the_tables_were_empty_finds_rows_by_key() {
    assert_eq!(scanned_by_old_plans(Pooler::None).await, 0);
}

/// Behind a pooler, whose sessions the store cannot set up, the old plan does read whole tables, and is discarded for
/// that.
#[tokio::test]
async fn a_plan_from_the_time_when_the_tables_were_empty_is_given_up() {
    let scanned = scanned_by_old_plans(Pooler::Session).await;
    // One claim with the old plan reads the table once for each priority and a few times more.
    assert!(scanned < 2 * 7 * MANY as i64, "{scanned} rows were scanned");
}

/// So many rows that reading all of them takes long.
const MANY: usize = 8 * JOBS;

/// How many rows claims read by scans if their statements were planned for empty tables.
async fn scanned_by_old_plans(pooler: Pooler) -> i64 {
    /// So many that the server settles on a plan, and the store doubts it.
    const IN_VAIN: usize = 25;
    const CLAIMS: usize = 10;
    let node = quiet().await;
    look(&node).await;
    let alone = |options: &mut PostgresOptions| {
        options.connections = 1;
        options.pooler = pooler;
    };
    let store = node.peer(&url(), alone).await;
    for _ in 0..IN_VAIN {
        assert!(store.claim(&node.claiming(LIMIT)).await.expect("claim answers").is_empty());
    }
    node.fill(MANY).await;
    for _ in 0..CLAIMS {
        assert_eq!(store.claim(&node.claiming(LIMIT)).await.expect("claim answers").len(), LIMIT);
    }
    // A server process reports its reads at the latest when it ends.
    store.close().await;
    let mut connection = node.session().await;
    until(async || taken(&mut connection).await == CLAIMS * LIMIT).await;
    let scanned: i64 = sqlx::query_scalar(
        "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = 'scheduler_job_queue'::regclass",
    )
    .fetch_one(&mut connection)
    .await
    .expect("the server counts");
    node.close().await;
    scanned
}

/// How many rows were updated, according to the server's statistics.
async fn taken(connection: &mut PgConnection) -> usize {
    let count = sqlx::query_scalar(
        "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'scheduler_job_queue'::regclass",
    );
    let count: i64 = count.fetch_one(connection).await.expect("the server counts");
    count as usize
}

/// A node with jobs, of which the server knows this much.
async fn filled(known: Known) -> Node {
    let node = quiet().await;
    if known == Known::EmptyPages {
        node.fill(JOBS).await;
        each_table(&node, |table| format!("DELETE FROM {table} WHERE {}", of_jobs(table))).await;
    }
    if known == Known::Emptiness || known == Known::EmptyPages {
        look(&node).await;
    }
    node.fill(JOBS).await;
    if known == Known::Everything {
        look(&node).await;
    }
    node
}

/// The tables that a claim and a commit read.
const TABLES: [&str; 5] = [
    "scheduler_job",
    "scheduler_job_queue",
    "scheduler_job_execution",
    "scheduler_node",
    "scheduler_resource_permit",
];

/// A node whose tables autovacuum leaves alone.
async fn quiet() -> Node {
    let node = Node::new().await;
    each_table(&node, |table| format!("ALTER TABLE {table} SET (autovacuum_enabled = false)")).await;
    node
}

/// Whether the rows of a table come and go with jobs.
fn of_jobs(table: &str) -> bool {
    table != "scheduler_node"
}

/// Makes the server analyze the tables, and leaves them their pages.
async fn look(node: &Node) {
    each_table(node, |table| format!("VACUUM (ANALYZE, TRUNCATE false) {table}")).await;
}

async fn each_table(node: &Node, text: impl Fn(&str) -> String) {
    let mut connection = node.session().await;
    for table in TABLES {
        let done = sqlx::raw_sql(AssertSqlSafe(text(table))).execute(&mut connection).await;
        done.expect("it is done");
    }
}

type Values = HashMap<&'static str, Option<String>>;

fn claim_values(node: &Node, spare: usize) -> Values {
    HashMap::from([
        ("now", None),
        ("owner", Some(node.owner.to_string())),
        ("queues", Some("{default,other}".to_owned())),
        ("limits", Some(array([LIMIT, LIMIT]))),
        ("boost_ms", Some("900000".to_owned())),
        ("spare", Some(spare.to_string())),
    ])
}

fn query_values(after: String) -> Values {
    let mut values = Values::from([
        ("after", Some(after)),
        ("statuses", Some("{PENDING}".to_owned())),
        ("types", Some("{}".to_owned())),
        ("tags", Some("{}".to_owned())),
        ("lim", Some(LIMIT.to_string())),
    ]);
    let open = ["queue", "target", "method", "business_key", "principal", "fingerprint"];
    let times = ["created_from", "created_until", "ended_from", "ended_until"];
    values.extend(open.into_iter().chain(times).map(|name| (name, None)));
    values
}

fn settle_values(node: &Node, ids: &[(String, String)]) -> Values {
    let each = |text: &str| Some(array(ids.iter().map(|_| text)));
    HashMap::from([
        ("now", None),
        ("owner", Some(node.owner.to_string())),
        ("everything", Some("false".to_owned())),
        ("job_ids", Some(array(ids.iter().map(|(id, _)| id)))),
        ("fences", Some(array(ids.iter().map(|(_, fence)| fence)))),
        ("ends", each("SUCCEEDED")),
        ("delays", each("0")),
        ("failures", each("0")),
        ("crashes", each("0")),
        ("history", each("SUCCEEDED")),
        ("started_ago", each("2")),
        ("ran_for", each("1")),
        ("results", each("NULL")),
        ("errors", each("NULL")),
        ("error_classes", each("NULL")),
        ("fingerprints", each("NULL")),
        ("reasons", each("NULL")),
    ])
}

/// Runs a statement as a connection of the store would, and rolls it back.
async fn explain(node: &Node, mode: &str, text: &'static str, values: &Values) -> Plan {
    let mut connection = node.session().await;
    let planning = sqlx::query("SELECT set_config('plan_cache_mode', $1, false)").bind(mode);
    planning.execute(&mut connection).await.expect("it is set");
    // As in every session of the store.
    sqlx::raw_sql("SET enable_seqscan = off").execute(&mut connection).await.expect("it is set");
    let execute = prepare(&mut connection, node, text, values).await;
    sqlx::raw_sql("BEGIN").execute(&mut connection).await.expect("a transaction begins");
    let explain = AssertSqlSafe(format!("EXPLAIN (ANALYZE, FORMAT JSON) {execute}"));
    let plan = sqlx::query_scalar(explain).persistent(false).fetch_one(&mut connection).await;
    Plan::of(&plan.expect("the statement runs"))
}

/// Prepares a statement; returns the text that runs it with these values.
async fn prepare(connection: &mut PgConnection, node: &Node, text: &'static str, values: &Values) -> String {
    let namespace = node.place.namespace();
    let statement = Statement::compile(text, Dialect::Postgres, &namespace).expect("the text compiles");
    let prepare = AssertSqlSafe(format!("PREPARE measured AS {}", statement.sql().as_str()));
    sqlx::raw_sql(prepare).execute(&mut *connection).await.expect("it is prepared");
    let values: Vec<&Option<String>> =
        statement.binds().iter().map(|name| &values[name.to_string().as_str()]).collect();
    let execute = sqlx::query_scalar(
        "SELECT 'EXECUTE measured(' || string_agg(quote_nullable(value), ', ' ORDER BY place) || ')'
        FROM unnest($1::text[]) WITH ORDINALITY AS t (value, place)",
    );
    execute.bind(values).fetch_one(connection).await.expect("the values are quoted")
}

/// An array as PostgreSQL writes it.
fn array(items: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("{{{}}}", items.join(","))
}

/// The steps of a plan, each after the one that it feeds.
struct Plan(Vec<Step>);

struct Step {
    depth: usize,
    what: String,
    relation: String,
    index: String,
    /// How many rows it read in all, including those that it filtered out.
    rows: usize,
}

impl Plan {
    fn of(answer: &Value) -> Self {
        let mut steps = Vec::new();
        let mut open = vec![(0, &answer[0]["Plan"])];
        while let Some((depth, node)) = open.pop() {
            steps.push(Step::of(depth, node));
            let below = node["Plans"].as_array().into_iter().flatten();
            open.extend(below.rev().map(|node| (depth + 1, node)));
        }
        Self(steps)
    }

    fn expect_all<'p>(&self, steps: impl Iterator<Item = &'p Step>, right: impl Fn(&Step) -> bool) {
        for step in steps {
            assert!(right(step), "{step}\nin\n{self}");
        }
    }

    /// The steps that read this table.
    fn scans<'p>(&'p self, relation: &'p str) -> impl Iterator<Item = &'p Step> {
        self.0.iter().filter(move |step| step.relation == relation && step.what.ends_with("Scan"))
    }
}

impl Step {
    fn of(depth: usize, node: &Value) -> Self {
        let text = |name: &str| node[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| node[name].as_f64().unwrap_or_default();
        let passed_over =
            ["Filter", "Join Filter", "Index Recheck"].map(|by| number(&format!("Rows Removed by {by}")));
        let each_time = number("Actual Rows") + passed_over.iter().sum::<f64>();
        Self {
            depth,
            what: text("Node Type"),
            relation: text("Relation Name"),
            index: text("Index Name"),
            rows: (each_time * number("Actual Loops")) as usize,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, what, relation, index, rows } = self;
        write!(f, "{:width$}{what} {relation} {index}: {rows} rows", "", width = 2 * depth)
    }
}
