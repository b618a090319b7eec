//! A schema of its own for a test.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod harness;
pub(crate) mod node;
pub(crate) mod proxy;
pub(crate) mod user;

use ratchet_servers::Server;
use ratchet_store_core::{Dialect, Statement};
use ratchet_store_postgres::{Namespace, PostgresOptions, PostgresStore};
use sqlx::{Connection as _, PgConnection};

/// The URL of PostgreSQL.
pub(crate) fn url() -> String {
    ratchet_servers::url(Server::Postgres).unwrap_or_else(|error| panic!("{error}"))
}

/// The URL of PgBouncer in front of it.
pub(crate) fn pooled_url() -> String {
    ratchet_servers::url(Server::Pgbouncer).unwrap_or_else(|error| panic!("{error}"))
}

/// A schema with the tables of a store.
pub(crate) struct TestDatabase {
    name: String,
}

impl TestDatabase {
    /// Creates one whose name has this prefix.
    pub(crate) async fn new(prefix: &str) -> Self {
        let place = Self { name: format!("{prefix}_{:032x}", rand::random::<u128>()) };
        let migrator = PostgresStore::migrator(&url(), place.namespace()).expect("the URL is right");
        migrator.migrate(|_| {}).await.expect("the tables are made");
        place
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn namespace(&self) -> Namespace {
        Namespace::schema(&self.name).expect("the name is plain")
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        let mut options = PostgresOptions::default();
        options.namespace = self.namespace();
        options.connections = 3;
        options
    }

    /// A store in it.
    pub(crate) async fn store(&self) -> PostgresStore {
        PostgresStore::connect(&url(), self.options()).await.expect("the store opens")
    }

    /// A connection of the user, with a search path that does not lead to the schema.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&url()).await.expect("the server answers")
    }

    /// Removes it.
    pub(crate) async fn drop(self) {
        drop_schema(&self.namespace()).await;
    }
}

/// Removes a schema with everything in it.
pub(crate) async fn drop_schema(namespace: &Namespace) {
    let statement = Statement::compile("DROP SCHEMA ratchet CASCADE", Dialect::Postgres, namespace);
    let text = statement.expect("the text is right").sql();
    let mut connection = PgConnection::connect(&url()).await.expect("the server answers");
    sqlx::raw_sql(text).execute(&mut connection).await.expect("the schema goes");
}
