//! Opening files, good and bad.

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use common::{count, job};
use ratchet_api::store::JobBulkStore as _;
use ratchet_api::{Inserted, StoreErrorKind, Submission};
use ratchet_store_sqlite::{Namespace, SqliteOptions, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tracing::Dispatch;

fn place() -> (TempDir, std::path::PathBuf) {
    let dir = TempDir::new().expect("there is room for files");
    let file = dir.path().join("jobs.db");
    (dir, file)
}

async fn refusal(path: impl AsRef<Path>) -> (StoreErrorKind, String) {
    let error = SqliteStore::open(path).await.expect_err("it cannot be opened");
    assert_eq!(error.op(), "open", "what the user called");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn a_file_that_is_not_there_is_made_with_its_tables_and_opened_again_as_it_is() {
    let (_dir, file) = place();
    for jobs in 1..=2 {
        let store = SqliteStore::open(&file).await.expect("it opens");
        assert_eq!(store.insert(&[Submission::single(job())]).await.expect("it is stored"), [Inserted::New]);
        assert_eq!(count(&store).await, jobs);
        store.close().await;
    }
}

#[tokio::test]
async fn a_directory_that_does_not_exist_is_named() {
    let (dir, _) = place();
    let (kind, text) = refusal(dir.path().join("nowhere").join("jobs.db")).await;
    assert_eq!(kind, StoreErrorKind::Invalid);
    assert!(text.contains("is in a directory that does not exist; make it first"), "{text}");
}

#[tokio::test]
async fn a_directory_is_no_file() {
    let (dir, _) = place();
    let (kind, text) = refusal(dir.path()).await;
    assert_eq!(kind, StoreErrorKind::Invalid);
    assert!(text.contains("is a directory"), "{text}");
}

#[tokio::test]
async fn a_file_of_something_else_is_left_alone() {
    let (_dir, file) = place();
    let text = "Dear diary, ".repeat(100);
    std::fs::write(&file, &text).expect("it is written");
    let (kind, message) = refusal(&file).await;
    assert_eq!(kind, StoreErrorKind::Invalid);
    assert!(message.contains("is not a database of SQLite") && message.ends_with("(code 26)"), "{message}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_left_alone() {
    let (_dir, file) = place();
    SqliteStore::open(&file).await.expect("it opens").close().await;
    let mut connection = SqliteConnectOptions::new().filename(&file).connect().await.expect("it opens");
    let newer = "INSERT INTO ratchet_schema_version VALUES ('999', 0, 'from the future', 'x')";
    sqlx::query(newer).execute(&mut connection).await.expect("it is written");
    connection.close().await.expect("it closes");
    let (kind, text) = refusal(&file).await;
    assert_eq!(kind, StoreErrorKind::NotMigrated);
    assert!(text.contains("has version 999, this program knows 001 at most"), "{text}");
}

#[tokio::test]
async fn memory_is_not_a_file() {
    let (kind, text) = refusal(":memory:").await;
    assert_eq!(kind, StoreErrorKind::Invalid);
    assert!(text.contains("ratchet-store-memory"), "{text}");
}

#[tokio::test]
async fn a_store_opens_from_a_url_of_sqlite_and_from_options_of_the_driver() {
    let (_dir, file) = place();
    let url = format!("sqlite://{}", file.display());
    let one = SqliteStore::open(&url).await.expect("it opens");
    assert_eq!(one.insert(&[Submission::single(job())]).await.expect("it is stored"), [Inserted::New]);
    let described = SqliteConnectOptions::new().filename(&file);
    let two = SqliteStore::from_options(described, SqliteOptions::default()).await.expect("it opens");
    assert_eq!(count(&two).await, 1, "it is the same file");
    let memory =
        SqliteStore::from_options("sqlite::memory:".parse().expect("a URL"), SqliteOptions::default());
    assert_eq!(memory.await.expect_err("memory is not a file").kind(), StoreErrorKind::Invalid);
}

#[tokio::test]
async fn a_url_of_another_database_is_refused_and_makes_no_file() {
    for url in ["postgres://app:s3cret@db/jobs", "mysql://db/jobs", "mongodb://db"] {
        let (kind, text) = refusal(url).await;
        assert_eq!(kind, StoreErrorKind::Invalid);
        let scheme = url.split(':').next().expect("a scheme");
        assert!(text.contains(scheme) && text.contains("sqlite://"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert!(!Path::new(&format!("{scheme}:")).exists());
    }
}

#[tokio::test]
async fn a_schema_is_not_a_prefix() {
    let (_dir, file) = place();
    let mut options = SqliteOptions::default();
    options.namespace = Namespace::schema("billing").expect("a name");
    let error = SqliteStore::open_with(&file, options).await.expect_err("it cannot be opened");
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(!file.exists());
}

#[tokio::test]
async fn two_prefixes_share_a_file_and_see_nothing_of_each_other() {
    let (_dir, file) = place();
    let open = async |prefix| {
        let mut options = SqliteOptions::default();
        options.namespace = Namespace::prefix(prefix).expect("a name");
        SqliteStore::open_with(&file, options).await.expect("it opens")
    };
    let (one, two) = (open("one_").await, open("two_").await);
    assert_eq!(one.insert(&[Submission::single(job())]).await.expect("it is stored"), [Inserted::New]);
    assert_eq!((count(&one).await, count(&two).await), (1, 0));
    common::drain(&two, 0).await;
    common::drain(&one, 1).await;
}

#[tokio::test]
async fn a_write_that_fails_leaves_nothing_behind_and_the_next_one_works() {
    let (_dir, file) = place();
    let store = SqliteStore::open(&file).await.expect("it opens");
    let mut connection = SqliteConnectOptions::new().filename(&file).connect().await.expect("it opens");
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON scheduler_job_queue BEGIN SELECT RAISE(ABORT, 'no'); END";
    sqlx::query(refuse).execute(&mut connection).await.expect("it is made");
    store.insert(&[Submission::single(job())]).await.expect_err("it is refused");
    assert_eq!(count(&store).await, 0);

    sqlx::query("DROP TRIGGER refuse").execute(&mut connection).await.expect("it is dropped");
    assert_eq!(store.insert(&[Submission::single(job())]).await.expect("it is stored"), [Inserted::New]);
    assert_eq!(count(&store).await, 1);
}

/// The log of the first open, which makes the tables.
async fn log_of_the_first_open(namespace: Namespace) -> String {
    let (dir, file) = place();
    let log = dir.path().join("log");
    let writer = Arc::new(File::create(&log).expect("it is made"));
    let logged = tracing_subscriber::fmt().with_writer(writer).finish();
    // While there is only one subscriber, tracing asks the subscriber of the thread that reaches a log line first. On
    // the thread of another test there is none, so the line is off for everyone. A second one that stays makes it ask
    // both.
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish()));
    let _guard = tracing::subscriber::set_default(logged);
    SqliteStore::open_with(&file, SqliteOptions::default().namespace(namespace)).await.expect("it opens");
    std::fs::read_to_string(log).expect("it is there")
}

#[tokio::test]
async fn a_namespace_is_logged_if_there_is_one() {
    let plain = log_of_the_first_open(Namespace::bare()).await;
    assert!(plain.contains("applied 001") && !plain.contains("namespace"), "{plain}");
    let prefixed = log_of_the_first_open(Namespace::prefix("app_").expect("a name")).await;
    assert!(prefixed.contains("namespace=prefix app_"), "{prefixed}");
}
