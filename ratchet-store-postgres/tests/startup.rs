//! The checks made when a store is opened. Their errors say what is wrong and what to do, never who or where.

mod common;

use std::error::Error;
use std::time::Duration;

use common::TestDatabase;
use common::user::{PASSWORD, User};
use ratchet_api::store::{
    ClaimRequest, JobBulkStore as _, JobClaimStore as _, NodeStore as _, StoreInfo as _,
};
use ratchet_api::{JobPayload, JsonText, NewJob, NodeInfo, Owner, StoreError, StoreErrorKind, Submission};
use ratchet_servers::Server;
use ratchet_store_postgres::{PostgresOptions, PostgresStore};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

/// The whole text of an error, for users and for developers.
fn whole(error: &StoreError) -> String {
    let mut text = format!("{error:?}");
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

async fn refused(url: &str, options: PostgresOptions) -> StoreError {
    PostgresStore::connect(url, options).await.expect_err("the store does not open")
}

#[tokio::test]
async fn a_missing_right_is_named_with_its_table_when_the_store_is_opened() {
    let (place, mut user) = (TestDatabase::new("test").await, User::new().await);
    user.grant(&place).await;
    let store = PostgresStore::connect(&user.url(None), place.options()).await.expect("it has every right");
    store.close().await;
    let (schema, name) = (place.name().to_owned(), user.name.clone());
    for (right, table) in [
        ("INSERT", "scheduler_job_execution"),
        ("UPDATE", "scheduler_job_queue"),
        ("DELETE", "scheduler_job_queue"),
        ("SELECT", "scheduler_batch"),
        ("SELECT", "vw_jobs"),
    ] {
        user.run(&format!("REVOKE {right} ON {schema}.{table} FROM {name}")).await;
        for migrate in [false, true] {
            let mut options = place.options();
            options.migrate = migrate;
            let error = refused(&user.url(None), options).await;
            assert_eq!(error.kind(), StoreErrorKind::Other);
            let said = error.to_string();
            assert!(said.contains(&format!("lacks rights: {right} on {table}; GRANT ")), "{said}");
        }
        user.run(&format!("GRANT {right} ON {schema}.{table} TO {name}")).await;
    }
    user.drop().await;
    place.drop().await;
}

#[tokio::test]
async fn a_server_that_only_reads_is_refused_when_the_store_is_opened() {
    let (place, mut user) = (TestDatabase::new("test").await, User::new().await);
    user.grant(&place).await;
    user.run(&format!("ALTER ROLE {} SET default_transaction_read_only = on", user.name.clone())).await;
    for migrate in [false, true] {
        let mut options = place.options();
        options.migrate = migrate;
        let error = refused(&user.url(None), options).await;
        assert!(error.is_transient(), "it may write soon: {error}");
        assert!(error.to_string().contains("switch `default_transaction_read_only` off"), "{error}");
    }
    user.drop().await;
    place.drop().await;
}

#[tokio::test]
async fn the_isolation_level_of_a_role_does_not_change_that_of_the_store() {
    let (place, mut user) = (TestDatabase::new("test").await, User::new().await);
    user.grant(&place).await;
    user.run(&format!("ALTER ROLE {} SET default_transaction_isolation = 'serializable'", user.name.clone()))
        .await;
    user.refuse_other_levels(&place).await;
    let store = PostgresStore::connect(&user.url(None), place.options()).await.expect("the store opens");
    let payload = JobPayload::new("a.B", "c", &JsonText::from_stored("[]")).expect("a call");
    store.insert(&[Submission::single(NewJob::new(payload))]).await.expect("stored");
    let owner = Owner::incarnate("test");
    store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(60)).await.expect("joined");
    let claims = store.claim(&ClaimRequest::new(owner, 1)).await;
    assert_eq!(claims.expect("claimed").len(), 1);
    store.close().await;
    user.drop().await;
    place.drop().await;
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused_before_anything_is_made_in_it() {
    let mut user = User::new().await;
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let database = format!("test_{:08x}", rand::random::<u32>());
        let make = format!("CREATE DATABASE {database} OWNER {} ENCODING '{encoding}'", user.name);
        user.run(&format!("{make} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")).await;
        let address = user.url(Some(&database));
        let mut options = PostgresOptions::default();
        options.migrate = true;
        let error = refused(&address, options).await;
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
        assert!(error.to_string().contains(&format!("the encoding {encoding}")), "{error}");
        assert!(error.to_string().contains("ENCODING 'UTF8'"), "{error}");
        let mut there = PgConnection::connect(&address).await.expect("the server answers");
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'ratchet'";
        assert_eq!(sqlx::query_scalar::<_, i64>(schemas).fetch_one(&mut there).await.expect("a count"), 0);
        there.close().await.expect("goodbye");
        user.run(&format!("DROP DATABASE {database}")).await;
    }
    user.drop().await;
}

#[tokio::test]
async fn a_url_of_another_database_is_refused_without_repeating_it() {
    for url in ["mysql://app:s3cret@localhost/jobs", "sqlite://jobs.db", "mongodb://db", "localhost/jobs", ""]
    {
        let error = refused(url, PostgresOptions::default()).await;
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains("`postgres://`"), "{error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn a_store_opens_from_options_of_the_driver() {
    let place = TestDatabase::new("test").await;
    let server: PgConnectOptions =
        ratchet_servers::url(Server::Postgres).expect("a server").parse().expect("a URL");
    let options = place.options().migrate(true).connections(2);
    let store = PostgresStore::from_options(server, options).await.expect("it opens");
    assert_eq!(store.name(), "postgres");
    store.close().await;
    place.drop().await;
}

#[tokio::test]
async fn an_error_of_connecting_says_what_is_wrong_and_never_who_or_where() {
    let (place, mut user) = (TestDatabase::new("test").await, User::new().await);
    user.grant(&place).await;
    let (own, nowhere) = (user.url(None), user.url(Some("hidden_database")));
    let stranger = own.replace(&user.name, "hidden_user");
    let name = user.name.clone();
    let mut closed = own.parse::<PgConnectOptions>().expect("a URL");
    closed = closed.port(1);
    let closed = format!("postgres://{name}:{PASSWORD}@{}:{}/x", closed.get_host(), closed.get_port());
    let unknown = format!("postgres://{name}:{PASSWORD}@hidden.invalid/x");
    let tls = format!("{own}?sslmode=require");
    for (address, what, advice, code) in [
        (&nowhere, "the server has no database of this name", "create it", Some("3D000")),
        (&stranger, "the server does not let this user in", "check the user in the URL", Some("28000")),
        (&closed, "no server listens at this port", "that the server runs", None),
        (&unknown, "the name of the host is not known", "check the host in the URL", None),
        (&tls, "no TLS connection to the server", "check the options for TLS in the URL", None),
        (&own, "the server has too many connections", "raise its limit", Some("53300")),
    ] {
        // The server checks this limit before it looks for the database.
        let limit = if address == &own { 0 } else { 9 };
        user.run(&format!("ALTER ROLE {name} CONNECTION LIMIT {limit}")).await;
        // One error comes from the migrator, the other from the store itself.
        let lazy = PostgresStore::lazy(address, place.options()).expect("a URL of PostgreSQL");
        let later = ratchet_api::store::StoreInfo::database_time(&lazy).await.expect_err("nobody answers");
        let connect = refused(address, place.options()).await;
        assert_eq!((connect.op(), later.op()), ("connect", "database_time"), "what the user called");
        for error in [connect, later] {
            let said = error.to_string();
            assert!(said.contains(what) && said.contains(advice), "{said}");
            assert_eq!(error.code(), code);
            let source = error.source().map(ToString::to_string).unwrap_or_default();
            assert!(source.is_empty() || !said.contains(&source), "it is said twice: {said}: {source}");
            let whole = whole(&error);
            for secret in [name.as_str(), PASSWORD, "hidden"] {
                assert!(!whole.contains(secret), "{secret}: {whole}");
            }
        }
    }
    user.drop().await;
    place.drop().await;
}
