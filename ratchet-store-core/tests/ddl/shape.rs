//! The same tables and columns in every dialect, and rows that no table accepts.

use std::collections::BTreeMap;

use ratchet_store_core::Dialect;

use crate::harness::list;
use crate::install::install;
use crate::place::{Product, TestDatabase};
use crate::{ALL, catalogue};

const SERVERS: &[Product] = &[Product::Postgres, Product::MySql, Product::MariaDb];

list! {
    ALL =>
        every_dialect_has_the_same_tables_and_columns,
        what_is_looked_for_has_an_index,
        rows_that_break_a_rule_are_refused;
    SERVERS =>
        columns_have_the_types_of_the_requirements;
}

/// Every table and view with its columns.
const TABLES: &[(&str, &str)] = &[
    ("ratchet_schema_version", "version applied_at description checksum"),
    (
        "scheduler_job",
        "job_id job_type queue priority max_retries backoff_policy backoff_param_ms timeout_ms expires_at payload target \
         method params on_success_payload on_success_target on_success_method on_failure_payload on_failure_target \
         on_failure_method idempotency_key business_key resource_name caller_principal trace_context batch_id depends_on \
         superseded_by created_at cron_expr zone_id next_fire rec_status version terminal_status terminal_error \
         error_fingerprint cancel_reason cancel_cascaded total_attempts crash_count blocked_by open_parents edge_count \
         scheduled_time terminated_at execution_start_time execution_end_time queue_wait_ms job_result progress",
    ),
    (
        "scheduler_job_queue",
        "job_id status job_type queue priority scheduled_time business_key timeout_ms max_retries expires_at batch_id \
         attempts crash_count blocked_by open_parents edge_count picked_by picked_at parked_on cancel_requested \
         cancel_reason paused_from_status last_error progress version updated_at",
    ),
    ("scheduler_business_key_reservation", "business_key owner_job_id owner_table reserved_at"),
    ("scheduler_idempotency_key", "key_hash job_id created_at"),
    ("scheduler_job_tag", "job_id tag place"),
    (
        "scheduler_job_execution",
        "job_id fence node_id status attempt started_at recorded_at duration_ms error_class error_message",
    ),
    ("scheduler_job_log", "log_id job_id fence ts level message"),
    ("scheduler_job_edge", "parent_id child_id edge_no condition_type priority state"),
    ("scheduler_workflow_condition", "parent_id child_id expression"),
    ("scheduler_batch", "batch_id total_items completed_items failed_items closed created_at completed_at"),
    ("scheduler_batch_metrics", "batch_id child_execution_ms"),
    ("scheduler_recurring_fire", "master_id fire_instant job_id created_at"),
    (
        "scheduler_node",
        "node_id label node_version methods queues started_at heartbeat_ts beating_since beat_gap_ms lease_until reaped skew_ms \
         running slots draining",
    ),
    ("scheduler_queue_pause", "queue paused_at"),
    ("scheduler_lock", "lock_name owner_node term locked_at expires_at"),
    ("scheduler_resource_limit", "resource_name max_concurrent retry_delay_ms updated_at"),
    ("scheduler_resource_permit", "resource_name job_id node_id acquired_at"),
    ("scheduler_dlq_alert", "alert_id job_id error_hash fingerprint alert_sent_at"),
    ("scheduler_dlq_alert_group", "fingerprint told_at alert_count"),
    (
        "scheduler_job_archive",
        "original_job_id final_status job_type priority queue payload target method business_key tags total_attempts \
         final_error job_result created_at terminated_at archived_at",
    ),
    (
        "vw_jobs",
        "job_id job_type queue priority max_retries backoff_policy backoff_param_ms timeout_ms expires_at payload target \
         method params on_success_payload on_success_target on_success_method on_failure_payload on_failure_target \
         on_failure_method idempotency_key business_key resource_name caller_principal trace_context batch_id depends_on \
         superseded_by created_at cron_expr zone_id next_fire rec_status tags status version scheduled_time attempts \
         crash_count blocked_by open_parents edge_count picked_by picked_at parked_on paused_from_status last_error \
         cancel_reason progress cancel_requested terminal_status error_fingerprint terminated_at execution_start_time \
         execution_end_time queue_wait_ms job_result",
    ),
];

/// The columns in the catalogue by table, each with its whole description.
async fn columns(place: &TestDatabase) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::<String, Vec<String>>::new();
    for line in catalogue::of(place).await {
        if let Some((table, column)) = line.strip_prefix("column: ").and_then(|line| line.split_once('|')) {
            let (_, column) = column.split_once('|').expect("a number before the name");
            tables.entry(table.to_owned()).or_default().push(column.to_owned());
        }
    }
    tables
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
}

// shows: S150 S151 S152 S157 S158
async fn every_dialect_has_the_same_tables_and_columns(place: TestDatabase) {
    install(&place).await;
    let tables = columns(&place).await;
    assert_eq!(sorted(tables.keys().map(String::as_str)), sorted(TABLES.iter().map(|(name, _)| *name)));
    for (name, wanted) in TABLES {
        // Where indexes cannot be partial, one more column marks parked rows.
        let found = tables[*name].iter().filter_map(|column| column.split('|').next());
        let found = found.filter(|column| *column != "is_parked");
        assert_eq!(sorted(found), sorted(wanted.split_whitespace()), "{name}");
    }
}

// shows: S153
async fn columns_have_the_types_of_the_requirements(place: TestDatabase) {
    install(&place).await;
    let (id, text, time) = match place.product {
        Product::Postgres => ("uuid", "character varying", "timestamp(3) with time zone"),
        _ => ("binary(16)", "varchar", "datetime(3)"),
    };
    let tables = columns(&place).await;
    for (table, column, wanted) in [
        ("scheduler_job", "job_id", id.to_owned()),
        ("scheduler_job", "depends_on", id.to_owned()),
        ("scheduler_job", "superseded_by", id.to_owned()),
        ("scheduler_job", "job_type", format!("{text}(16)")),
        ("scheduler_job", "resource_name", format!("{text}(100)")),
        ("scheduler_job", "caller_principal", format!("{text}(255)")),
        ("scheduler_job", "idempotency_key", format!("{text}(255)")),
        ("scheduler_job", "business_key", format!("{text}(255)")),
        ("scheduler_job", "created_at", time.to_owned()),
        ("scheduler_job_queue", "status", format!("{text}(16)")),
        ("scheduler_job_queue", "picked_by", format!("{text}(64)")),
        ("scheduler_job_queue", "scheduled_time", time.to_owned()),
        ("scheduler_job_queue", "version", "bigint".to_owned()),
    ] {
        let found = tables[table].iter().find(|line| line.split('|').next() == Some(column));
        let found = found.and_then(|line| line.split('|').nth(1)).expect("a column with a type");
        // MariaDB reports a display width, which means nothing.
        assert_eq!(found.replace("bigint(20)", "bigint"), wanted, "{table}.{column}");
    }
}

/// The indexes that the requirements name and that have the same columns everywhere.
const INDEXES: &[(&str, &str)] = &[
    ("idx_queue_orphan", "picked_by job_id"),
    ("idx_job_depends_on", "depends_on"),
    ("idx_job_superseded_by", "superseded_by"),
    ("idx_job_recurring_pending", "rec_status next_fire"),
];

/// The columns of an index, and whether it leaves rows out.
fn index(dialect: Dialect, catalogue: &[String], name: &str) -> (Vec<String>, bool) {
    let mut columns = Vec::new();
    let mut partial = false;
    for line in catalogue.iter().filter_map(|line| line.strip_prefix("index: ")) {
        let cells: Vec<&str> = line.split('|').collect();
        match dialect {
            Dialect::Postgres if line.starts_with(&format!("CREATE INDEX {name} ON ")) => {
                let (_, rest) = line.split_once('(').expect("columns");
                let (list, rest) = rest.split_once(')').expect("columns");
                columns.extend(list.split(", ").map(str::to_owned));
                partial = rest.contains(" WHERE ");
            }
            Dialect::MySql if cells[1] == name => columns.push(cells[3].to_owned()),
            // Behind its own columns, an index has those that lead to the row.
            Dialect::Sqlite if cells[1] == name && cells.last() == Some(&"1") => {
                columns.push(cells[6].to_owned());
                partial = cells[4] == "1";
            }
            _ => {}
        }
    }
    (columns, partial)
}

// shows: S149 S159
async fn what_is_looked_for_has_an_index(place: TestDatabase) {
    install(&place).await;
    let (dialect, catalogue) = (place.product.dialect(), catalogue::of(&place).await);
    let has_partial = dialect != Dialect::MySql;
    let claim = match has_partial {
        true if dialect == Dialect::Sqlite => "queue priority scheduled_time job_id parked_on",
        true => "queue priority scheduled_time job_id",
        // Every row is in every index: the columns that mark executable rows come first.
        false => "status blocked_by is_parked queue priority scheduled_time job_id",
    };
    for (name, wanted) in INDEXES.iter().chain(&[("idx_claim_executable", claim)]) {
        let (columns, partial) = index(dialect, &catalogue, name);
        assert_eq!(columns.join(" "), *wanted, "{name}");
        assert_eq!(partial, has_partial, "{name}");
    }
}

/// A queue row with these columns; the id and the time do not matter.
fn queue_row(product: Product, columns: &str, values: &str) -> &'static str {
    const ID: &str = "0190163d8694739baea5966c26f8ad91";
    let id = if product == Product::Postgres { format!("'{ID}'") } else { format!("x'{ID}'") };
    [
        "INSERT INTO ratchet.scheduler_job_queue \
         (job_id, job_type, queue, priority, max_retries, scheduled_time, updated_at, ",
        columns,
        ") SELECT ",
        &id,
        ", 'SINGLE', 'default', 2, 0, v.applied_at, v.applied_at, ",
        values,
        " FROM ratchet.ratchet_schema_version v",
    ]
    .concat()
    .leak()
}

// shows: S154 S156 S159
async fn rows_that_break_a_rule_are_refused(place: TestDatabase) {
    install(&place).await;
    let mut client = place.connect().await;
    for (columns, values) in [
        ("status", "'FAILED'"),
        ("status", "'RUNNING'"),
        ("status, picked_by", "'PENDING', 'node/1'"),
        ("status, paused_from_status", "'PAUSED', 'RUNNING'"),
    ] {
        assert!(
            client.try_run(queue_row(place.product, columns, values)).await.is_err(),
            "{columns}: {values}"
        );
    }
    client.run(queue_row(place.product, "status", "'PENDING'")).await;
    let again = client.try_run(queue_row(place.product, "status", "'PENDING'")).await;
    assert!(again.is_err(), "a job lives twice");

    let reserve = "INSERT INTO ratchet.scheduler_business_key_reservation \
                   (business_key, owner_job_id, owner_table, reserved_at) \
                   SELECT 'key', q.job_id, 'QUEUE', q.updated_at FROM ratchet.scheduler_job_queue q";
    client.run(reserve).await;
    assert!(client.try_run(reserve).await.is_err(), "a key is held twice");
}
