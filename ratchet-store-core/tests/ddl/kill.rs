//! Processes that migrate at once, and die while they do.

use ratchet_store_core::migrate::Version;
use sqlx::ConnectOptions as _;
use sqlx::mysql::MySqlSslMode;
use sqlx::postgres::PgSslMode;

use crate::cut::Cut;
use crate::harness::list;
use crate::install::equals_clean_install;
use crate::place::{Product, TestDatabase, eventually};
use crate::text;
use crate::victim::{self, Prey};

const SERVERS: &[Product] = &[Product::Postgres, Product::MySql, Product::MariaDb];

list! {
    SERVERS =>
        two_migrate_at_once_and_both_are_killed_in_the_middle_and_a_third_finishes;
    &[Product::Sqlite] =>
        two_migrate_at_once_and_one_is_killed_in_the_middle_and_a_third_finds_all_done;
}

/// Two tables that the first script makes, not first and not last.
const EARLY: &str = "scheduler_job_edge";
const LATE: &str = "scheduler_resource_permit";

// shows: S177
async fn two_migrate_at_once_and_both_are_killed_in_the_middle_and_a_third_finishes(place: TestDatabase) {
    let (first_line, second_line) = (cut(&place, EARLY).await, cut(&place, LATE).await);
    let mut first = migrate(&place, &first_line);
    first.hear("applying 001 baseline");
    first_line.is_silent().await;
    let mut second = migrate(&place, &second_line);
    someone_waits_for_the_lock(&place).await;

    first.kill();
    second.hear("applying 001 baseline");
    second_line.is_silent().await;
    second.kill();
    let recorded = place.connect().await.rows("SELECT count(*) FROM ratchet.ratchet_schema_version").await;
    assert!(matches!(recorded, None | Some(0)), "one of them was not in the middle but at the end");

    let third = place.migrator(&text::of(place.product).migrations());
    assert_eq!(third.migrate(|_| {}).await.unwrap(), [Version(1)]);
    equals_clean_install(&place).await;
}

/// Starts a process that migrates over this line.
fn migrate(place: &TestDatabase, line: &Cut) -> Prey {
    let (host, port) = (line.address.ip().to_string(), line.address.port());
    let url = match place.product {
        Product::Postgres => {
            place.postgres().host(&host).port(port).ssl_mode(PgSslMode::Disable).to_url_lossy()
        }
        _ => place.mysql().host(&host).port(port).ssl_mode(MySqlSslMode::Disabled).to_url_lossy(),
    };
    let environment = [(place.product.server().variable(), url.to_string())];
    victim::start_with(place, &text::of(place.product).migrations(), &environment)
}

/// A line that falls silent at this table.
async fn cut(place: &TestDatabase, table: &'static str) -> Cut {
    let server = match place.product {
        Product::Postgres => {
            let options = place.postgres();
            (options.get_host().to_owned(), options.get_port())
        }
        _ => {
            let url = place.mysql().to_url_lossy();
            (url.host_str().unwrap().to_owned(), url.port().unwrap_or(3306))
        }
    };
    Cut::before(server, table).await
}

/// Waits until a second process waits for the lock, so that both are there before the first dies.
async fn someone_waits_for_the_lock(place: &TestDatabase) {
    let waiting = match place.product {
        Product::Postgres => "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
        _ => "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock'",
    };
    eventually("someone waits for the lock", || async {
        place.connect().await.number(waiting, &[]).await > 0
    })
    .await;
}

/// A script that counts without end: SQLite has no line to cut, so the script makes the first process stop.
const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;";

// shows: S177
async fn two_migrate_at_once_and_one_is_killed_in_the_middle_and_a_third_finds_all_done(place: TestDatabase) {
    let migrations = text::of(place.product).migrations();
    let (name, baseline) = migrations[0];
    let mut first = victim::start(&place, &[(name, [baseline, ENDLESS].concat().leak())]);
    first.hear("applying 001 baseline");
    let journal = place.file().with_extension("db-journal");
    eventually("the script has written", || async { journal.exists() }).await;
    let mut second = victim::start(&place, &migrations);

    first.kill();
    second.hear("applied 001 baseline");
    assert_eq!(place.migrator(&migrations).migrate(|_| {}).await.unwrap(), []);
    equals_clean_install(&place).await;
}
