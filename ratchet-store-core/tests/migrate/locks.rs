//! Migrations that meet each other or a busy table, or are killed.

use std::time::Duration;

use ratchet_store_core::migrate::{MigrateError, MigrationProgress};
use tokio::sync::{mpsc, oneshot};

use crate::cases::{IN_DOUBT, quietly, versions};
use crate::harness::list;
use crate::place::{Client, Product, TestDatabase, eventually};
use crate::victim;

const SERVERS: &[Product] = &[Product::Postgres, Product::MySql, Product::MariaDb];
const SQLITE: &[Product] = &[Product::Sqlite];

list! {
    SERVERS =>
        a_migration_that_runs_is_waited_for_and_not_for_ever,
        a_table_in_use_is_waited_for_with_pauses,
        a_table_that_stays_in_use_is_a_clear_error,
        a_migration_that_was_killed_in_the_middle_is_finished_by_the_next;
    &[Product::Postgres] =>
        a_dead_migration_gives_its_lock_up_even_while_its_statement_waits;
    &[Product::MySql, Product::MariaDb] =>
        a_statement_whose_answer_was_lost_stays_in_doubt_while_its_table_is_in_use;
    SQLITE =>
        a_writer_is_waited_for_and_not_for_ever,
        a_migration_that_was_killed_in_the_middle_leaves_nothing_behind;
}

const GATE: (&str, &str) = ("V001__gate.sql", "CREATE TABLE ratchet.gate (x int)");
/// A script that stops in the middle while someone uses the gate.
const THROUGH_GATE: (&str, &str) = (
    "V002__through_gate.sql",
    "CREATE TABLE ratchet.half (x int); ALTER TABLE ratchet.gate ADD COLUMN y int; CREATE TABLE ratchet.whole (x int)",
);
const SCRIPTS: &[(&str, &str)] = &[GATE, THROUGH_GATE];
const FOR_EVER: Duration = Duration::from_secs(600);

/// Creates the gate and uses it in a transaction that stays open.
async fn close_gate(place: &TestDatabase) -> Client {
    place.migrator(&[GATE]).migrate(quietly).await.unwrap();
    let mut client = place.connect().await;
    client.run("BEGIN").await;
    client.run("SELECT * FROM ratchet.gate").await;
    client
}

async fn open_gate(mut gate: Client) {
    gate.run("COMMIT").await;
}

/// Waits until a session waits for the gate.
async fn someone_waits(place: &TestDatabase) {
    let waiting = match place.product {
        Product::Postgres => {
            "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
             JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE NOT l.granted AND c.relname = 'gate' AND n.nspname = :schema"
        }
        _ => {
            "SELECT count(*) FROM information_schema.processlist \
             WHERE state LIKE '%table metadata lock%' AND info LIKE concat('%', :schema, '%')"
        }
    };
    eventually("someone waits for the gate", || async {
        place.connect().await.number(waiting, &[&place.name]).await > 0
    })
    .await;
}

async fn everything_is_there(place: &TestDatabase) {
    let mut client = place.connect().await;
    assert_eq!(client.versions().await, 2);
    for count in [
        "SELECT count(*) FROM ratchet.half",
        "SELECT count(y) FROM ratchet.gate",
        "SELECT count(*) FROM ratchet.whole",
    ] {
        assert_eq!(client.rows(count).await, Some(0), "{count}");
    }
    assert_eq!(client.rows("SELECT count(*) FROM ratchet.ratchet_schema_progress").await, None);
    assert!(place.migrator(SCRIPTS).status().await.unwrap().is_current());
}

// shows: S177
async fn a_migration_that_runs_is_waited_for_and_not_for_ever(place: TestDatabase) {
    let gate = close_gate(&place).await;
    let (began, beginning) = oneshot::channel();
    let first = place.migrator(SCRIPTS).table_wait(FOR_EVER);
    let first = tokio::spawn(async move {
        let mut began = Some(began);
        let tell = |_: MigrationProgress<'_>| {
            if let Some(began) = began.take() {
                began.send(()).unwrap();
            }
        };
        first.migrate(tell).await
    });
    beginning.await.unwrap();

    let hasty = place.migrator(SCRIPTS).lock_wait(Duration::from_secs(1)).migrate(quietly).await;
    assert!(matches!(hasty, Err(MigrateError::Locked { .. })), "{hasty:?}");

    let patient = place.migrator(SCRIPTS).lock_wait(FOR_EVER);
    let patient = tokio::spawn(async move { patient.migrate(quietly).await });
    open_gate(gate).await;
    assert_eq!(first.await.unwrap().unwrap(), versions(&[2]));
    assert_eq!(patient.await.unwrap().unwrap(), versions(&[]));
    everything_is_there(&place).await;
}

async fn a_table_in_use_is_waited_for_with_pauses(place: TestDatabase) {
    let gate = close_gate(&place).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let migrator = place.migrator(SCRIPTS).lock_wait(FOR_EVER).table_wait(Duration::from_secs(1)).tries(100);
    let migrating = tokio::spawn(async move {
        migrator
            .migrate(|progress| {
                if let MigrationProgress::Waiting { tries, .. } = progress {
                    let _ = tell.send(tries);
                }
            })
            .await
    });
    assert_eq!(told.recv().await, Some(1));
    // Other sessions are served while it pauses: nobody waits behind it.
    let mut other = place.connect().await;
    other.run("INSERT INTO ratchet.gate (x) VALUES (1)").await;
    other.run("DELETE FROM ratchet.gate").await;
    open_gate(gate).await;
    assert_eq!(migrating.await.unwrap().unwrap(), versions(&[2]));
    everything_is_there(&place).await;
}

async fn a_table_that_stays_in_use_is_a_clear_error(place: TestDatabase) {
    let gate = close_gate(&place).await;
    let blocked = place
        .migrator(SCRIPTS)
        .lock_wait(FOR_EVER)
        .table_wait(Duration::from_secs(1))
        .tries(2)
        .migrate(quietly)
        .await;
    let Err(error) = blocked else { panic!("{blocked:?}") };
    let text = "script 002 could not lock a table in 2 tries; end the long transaction that uses it and run the \
                migration again";
    assert_eq!(error.to_string(), text);
    open_gate(gate).await;
    assert_eq!(place.migrator(SCRIPTS).migrate(quietly).await.unwrap(), versions(&[2]));
    everything_is_there(&place).await;
}

// shows: S177
async fn a_migration_that_was_killed_in_the_middle_is_finished_by_the_next(place: TestDatabase) {
    let gate = close_gate(&place).await;
    let mut prey = victim::start(&place, SCRIPTS);
    prey.hear("applying 002 through gate");
    someone_waits(&place).await;
    prey.kill();

    let next = place.migrator(SCRIPTS).lock_wait(FOR_EVER).table_wait(FOR_EVER);
    let next = tokio::spawn(async move { next.migrate(quietly).await });
    open_gate(gate).await;
    assert_eq!(next.await.unwrap().unwrap(), versions(&[2]));
    everything_is_there(&place).await;
}

async fn a_dead_migration_gives_its_lock_up_even_while_its_statement_waits(place: TestDatabase) {
    let gate = close_gate(&place).await;
    let mut prey = victim::start(&place, SCRIPTS);
    prey.hear("applying 002 through gate");
    someone_waits(&place).await;
    prey.kill();

    let next = place.migrator(SCRIPTS).lock_wait(FOR_EVER).table_wait(FOR_EVER);
    let (tell, mut told) = mpsc::unbounded_channel();
    let next =
        tokio::spawn(async move { next.migrate(|progress| drop(tell.send(progress.to_string()))).await });
    // The process has the lock, and the gate is still closed.
    assert_eq!(told.recv().await.as_deref(), Some("applying 002 through gate"));
    open_gate(gate).await;
    assert_eq!(next.await.unwrap().unwrap(), versions(&[2]));
    everything_is_there(&place).await;
}

async fn a_statement_whose_answer_was_lost_stays_in_doubt_while_its_table_is_in_use(place: TestDatabase) {
    let bad = "ALTER TABLE ratchet.gate ADD COLUMN y int; INSERT INTO ratchet.missing VALUES (1)";
    place.migrator(&[GATE, ("V002__y.sql", bad)]).migrate(quietly).await.unwrap_err();
    place.connect().await.run(IN_DOUBT).await;
    // The lock makes the server wait before it can see that the column exists.
    let mut user = place.connect().await;
    user.run("LOCK TABLES ratchet.gate WRITE").await;

    let good = "ALTER TABLE ratchet.gate ADD COLUMN y int";
    let migrator =
        place.migrator(&[GATE, ("V002__y.sql", good)]).table_wait(Duration::from_secs(1)).tries(100);
    let (tell, mut waits) = mpsc::unbounded_channel();
    let migrating = tokio::spawn(async move {
        let tell = |progress: MigrationProgress<'_>| {
            if matches!(progress, MigrationProgress::Waiting { .. }) {
                let _ = tell.send(());
            }
        };
        migrator.migrate(tell).await
    });
    waits.recv().await.unwrap();
    user.run("UNLOCK TABLES").await;
    assert_eq!(migrating.await.unwrap().unwrap(), versions(&[2]));
}

async fn a_writer_is_waited_for_and_not_for_ever(place: TestDatabase) {
    let mut writer = place.connect().await;
    writer.run("BEGIN IMMEDIATE").await;
    let hasty = place.migrator(SCRIPTS).lock_wait(Duration::from_millis(100)).migrate(quietly).await;
    assert!(matches!(hasty, Err(MigrateError::Locked { .. })), "{hasty:?}");

    let patient = place.migrator(SCRIPTS).lock_wait(FOR_EVER);
    let patient = tokio::spawn(async move { patient.migrate(quietly).await });
    writer.run("COMMIT").await;
    assert_eq!(patient.await.unwrap().unwrap(), versions(&[1, 2]));
    everything_is_there(&place).await;
}

/// A script that writes, and then counts without end.
const ENDLESS: (&str, &str) = (
    "V002__through_gate.sql",
    "CREATE TABLE ratchet.half (x int); \
     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;",
);

// shows: S177
async fn a_migration_that_was_killed_in_the_middle_leaves_nothing_behind(place: TestDatabase) {
    let mut prey = victim::start(&place, &[GATE, ENDLESS]);
    prey.hear("applying 002 through gate");
    let journal = place.file().with_extension("db-journal");
    eventually("the script has written", || async { journal.exists() }).await;
    prey.kill();

    let next = place.migrator(SCRIPTS);
    assert_eq!(next.migrate(quietly).await.unwrap(), versions(&[2]));
    everything_is_there(&place).await;
}
