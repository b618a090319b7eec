//! Empty stores in SQL databases.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use ratchet_api::StoreClock;
use ratchet_api::store::JobStore;
use ratchet_servers::Server;
use ratchet_store_core::{Dialect, Statement};
use ratchet_store_postgres::{Namespace, PostgresOptions, PostgresStore};
use ratchet_store_sqlite::{Durability, SqliteOptions, SqliteStore};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;

use super::TestStore;

/// Makes an empty SQLite file.
pub fn sqlite() -> BoxFuture<'static, Box<dyn TestStore>> {
    Box::pin(async { Box::new(File::default()) as Box<dyn TestStore> })
}

/// A SQLite file in a folder of its own.
pub struct File(TempDir);

impl Default for File {
    fn default() -> Self {
        Self(TempDir::new().expect("a directory"))
    }
}

impl File {
    pub fn path(&self) -> PathBuf {
        self.0.path().join("jobs.db")
    }
}

#[async_trait]
impl TestStore for File {
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        let mut options = SqliteOptions::default();
        options.clock = clock;
        // No case cuts the power, and flushing the files of many cases at once would keep nodes from beating in time.
        options.durability = Durability::Normal;
        Arc::new(SqliteStore::open_with(self.path(), options).await.expect("the file opens"))
    }
}

/// Makes an empty schema on the PostgreSQL test server.
pub fn postgres() -> BoxFuture<'static, Box<dyn TestStore>> {
    Box::pin(async { Box::new(Schema::migrated().await) as Box<dyn TestStore> })
}

/// A schema of PostgreSQL with a name of its own.
pub struct Schema(pub Namespace);

impl Default for Schema {
    fn default() -> Self {
        let name = format!("suite_{:032x}", rand::random::<u128>());
        Self(Namespace::schema(name).expect("a plain name"))
    }
}

impl Schema {
    /// Creates one that has its tables.
    pub async fn migrated() -> Self {
        let schema = Self::default();
        let migrator = PostgresStore::migrator(&postgres_url(), schema.0.clone()).expect("the URL is right");
        migrator.migrate(|_| {}).await.expect("the tables are made");
        schema
    }
}

/// Returns the URL of the PostgreSQL test server.
pub fn postgres_url() -> String {
    ratchet_servers::url(Server::Postgres).unwrap_or_else(|error| panic!("{error}"))
}

#[async_trait]
impl TestStore for Schema {
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        let mut options = PostgresOptions::default();
        options.clock = clock;
        options.namespace = self.0.clone();
        options.connections = 4;
        Arc::new(PostgresStore::connect(&postgres_url(), options).await.expect("the store opens"))
    }

    async fn remove(&self) {
        let drop = Statement::compile("DROP SCHEMA ratchet CASCADE", Dialect::Postgres, &self.0);
        let mut connection = PgConnection::connect(&postgres_url()).await.expect("the server answers");
        let drop = drop.expect("the text is right").sql();
        sqlx::raw_sql(drop).execute(&mut connection).await.expect("the schema goes");
    }
}
