//! The answers of real servers to broken constraints and lost races, and that a re-run cures a lost race.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ratchet_store_core::ConstraintDetector as _;
use ratchet_store_core::transient::rerun;
use tokio::sync::Barrier;

use crate::cases::quietly;
use crate::harness::list;
use crate::place::{Client, Product, TestDatabase};

const ALL: &[Product] = &Product::ALL;
const SERVERS: &[Product] = &[Product::Postgres, Product::MySql, Product::MariaDb];

list! {
    ALL =>
        broken_constraints_are_told_apart,
        a_lock_that_is_not_to_be_had_is_a_lost_race;
    SERVERS =>
        transactions_that_deadlock_both_succeed_when_run_again;
    &[Product::Sqlite] =>
        a_write_on_an_old_snapshot_is_a_lost_race;
}

const TABLES: (&str, &str) = (
    "V001__tables.sql",
    "CREATE TABLE ratchet.parent (id int PRIMARY KEY, n int NOT NULL UNIQUE); \
     CREATE TABLE ratchet.child (id int NOT NULL, FOREIGN KEY (id) REFERENCES ratchet.parent (id)); \
     INSERT INTO ratchet.parent VALUES (1, 10), (2, 20); INSERT INTO ratchet.child VALUES (1);",
);

async fn with_tables(place: &TestDatabase) -> Client {
    place.migrator(&[TABLES]).migrate(quietly).await.unwrap();
    place.connect().await
}

// shows: S173
async fn broken_constraints_are_told_apart(place: TestDatabase) {
    let mut client = with_tables(&place).await;
    let dialect = place.product.dialect();
    for (text, unique, foreign) in [
        ("INSERT INTO ratchet.parent VALUES (1, 30)", true, false),
        ("INSERT INTO ratchet.parent VALUES (3, 10)", true, false),
        ("INSERT INTO ratchet.child VALUES (9)", false, true),
        ("DELETE FROM ratchet.parent WHERE id = 1", false, true),
        ("INSERT INTO ratchet.parent VALUES (3, NULL)", false, false),
        ("INSERT INTO ratchet.nowhere VALUES (1)", false, false),
    ] {
        let error = client.try_run(text).await.expect_err(text);
        assert_eq!(dialect.is_unique_violation(&error), unique, "{text}: {error}");
        assert_eq!(dialect.is_foreign_key_violation(&error), foreign, "{text}: {error}");
        assert!(!dialect.is_transient(&error), "{text}: {error}");
    }
}

// shows: S173
async fn a_lock_that_is_not_to_be_had_is_a_lost_race(place: TestDatabase) {
    let mut holder = with_tables(&place).await;
    let mut other = place.connect().await;
    let text = if place.product == Product::Sqlite {
        holder.run("BEGIN IMMEDIATE").await;
        other.run("PRAGMA busy_timeout = 0").await;
        "BEGIN IMMEDIATE"
    } else {
        holder.run("BEGIN").await;
        holder.run("UPDATE ratchet.parent SET n = 11 WHERE id = 1").await;
        "SELECT * FROM ratchet.parent WHERE id = 1 FOR UPDATE NOWAIT"
    };
    let error = other.try_run(text).await.unwrap_err();
    let dialect = place.product.dialect();
    assert!(dialect.is_lost_race(&error) && dialect.is_transient(&error), "{error}");
    assert!(!dialect.is_unique_violation(&error) && !dialect.is_foreign_key_violation(&error), "{error}");
}

async fn a_write_on_an_old_snapshot_is_a_lost_race(place: TestDatabase) {
    let mut reader = with_tables(&place).await;
    reader.run("PRAGMA journal_mode = WAL").await;
    let mut writer = place.connect().await;
    reader.run("BEGIN").await;
    reader.run("SELECT * FROM ratchet.parent").await;
    writer.run("UPDATE ratchet.parent SET n = 11 WHERE id = 1").await;

    let error = reader.try_run("UPDATE ratchet.parent SET n = 12 WHERE id = 1").await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("517"), "{error}");
    assert!(place.product.dialect().is_lost_race(&error));
}

async fn transactions_that_deadlock_both_succeed_when_run_again(place: TestDatabase) {
    drop(with_tables(&place).await);
    let tries = Arc::new(AtomicU32::new(0));
    // On their first try, each has one row before either wants the row of the other.
    let both_hold_one = Arc::new(Barrier::new(2));
    let orders = [
        [
            "UPDATE ratchet.parent SET n = n + 1 WHERE id = 1",
            "UPDATE ratchet.parent SET n = n + 1 WHERE id = 2",
        ],
        [
            "UPDATE ratchet.parent SET n = n + 1 WHERE id = 2",
            "UPDATE ratchet.parent SET n = n + 1 WHERE id = 1",
        ],
    ];
    let runs = orders.map(|order| {
        let (place, tries, barrier) = (place.clone(), Arc::clone(&tries), Arc::clone(&both_hold_one));
        tokio::spawn(async move {
            let mut first = true;
            rerun(
                |error| place.product.dialect().is_lost_race(error),
                || {
                    let meets = std::mem::take(&mut first);
                    tries.fetch_add(1, Ordering::Relaxed);
                    let (place, barrier) = (&place, &barrier);
                    async move {
                        let mut client = place.connect().await;
                        client.try_run("BEGIN").await?;
                        client.try_run(order[0]).await?;
                        if meets {
                            barrier.wait().await;
                        }
                        client.try_run(order[1]).await?;
                        client.try_run("COMMIT").await
                    }
                },
            )
            .await
        })
    });
    for run in runs {
        run.await.unwrap().unwrap();
    }
    assert!(tries.load(Ordering::Relaxed) > 2, "they did not meet");
    let mut client = place.connect().await;
    assert_eq!(client.number("SELECT count(*) FROM ratchet.parent WHERE n IN (12, 22)", &[]).await, 2);
}
