//! Empty stores, one of each kind that is built in.

use std::sync::Arc;

use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use ratchet_store_sqlite::SqliteStore;
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;

/// The location of a store of this test alone, gone after [`remove`](TestStore::remove).
pub(crate) enum TestStore {
    /// A SQLite file.
    File { url: String, _directory: TempDir },
    /// A schema of the PostgreSQL for tests.
    #[cfg(feature = "postgres")]
    Schema { url: String, name: String },
    /// A database of the MongoDB for tests.
    #[cfg(feature = "mongodb")]
    Database { url: String, name: String },
}

/// A test for each of these cases on every store. A case gets a shop.
macro_rules! on_every_store {
    ($($case:ident)*) => {
        shop::on_every_store! { @ "sqlite" on_sqlite: $($case)* }
        shop::on_every_store! { @ "postgres" on_postgres: $($case)* }
        shop::on_every_store! { @ "mongodb" on_mongodb: $($case)* }
    };
    (@ $feature:literal $open:ident: $($case:ident)*) => {
        #[cfg(feature = $feature)]
        mod $open {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let shop = super::Shop::$open().await;
                super::$case(&shop).await;
                shop.close().await;
            })*
        }
    };
}
pub(crate) use on_every_store;

#[cfg(any(feature = "postgres", feature = "mongodb"))]
fn on_server(server: ratchet_servers::Server) -> (String, String) {
    let url = ratchet_servers::url(server).unwrap_or_else(|error| panic!("{error}"));
    (url, format!("cli_{}", JobId::generate().as_uuid().simple()))
}

impl TestStore {
    pub(crate) fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::File { url: directory.path().join("shop.db").display().to_string(), _directory: directory }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn schema() -> Self {
        let (url, name) = on_server(ratchet_servers::Server::Postgres);
        Self::Schema { url, name }
    }

    #[cfg(feature = "mongodb")]
    pub(crate) fn database() -> Self {
        let (url, name) = on_server(ratchet_servers::Server::Mongodb);
        Self::Database { url, name }
    }

    /// The program's name for this kind of store.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "sqlite",
            #[cfg(feature = "postgres")]
            Self::Schema { .. } => "postgres",
            #[cfg(feature = "mongodb")]
            Self::Database { .. } => "mongodb",
        }
    }

    pub(crate) fn url(&self) -> &str {
        match self {
            Self::File { url, .. } => url,
            #[cfg(feature = "postgres")]
            Self::Schema { url, .. } => url,
            #[cfg(feature = "mongodb")]
            Self::Database { url, .. } => url,
        }
    }

    /// The argument of `--schema`, if the store has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::File { .. } => None,
            #[cfg(feature = "postgres")]
            Self::Schema { name, .. } => Some(name),
            #[cfg(feature = "mongodb")]
            Self::Database { name, .. } => Some(name),
        }
    }

    /// The store, with its tables or collections.
    pub(crate) async fn open(&self) -> Arc<dyn JobStore> {
        match self {
            Self::File { url, .. } => Arc::new(SqliteStore::open(url).await.unwrap()),
            #[cfg(feature = "postgres")]
            Self::Schema { url, name } => {
                use ratchet_store_postgres::{Namespace, PostgresOptions, PostgresStore};
                let options = PostgresOptions::default().migrate(true).connections(2);
                let options = options.namespace(Namespace::schema(name).unwrap());
                Arc::new(PostgresStore::connect(url, options).await.unwrap())
            }
            #[cfg(feature = "mongodb")]
            Self::Database { url, name } => {
                use ratchet_store_mongodb::{MongoOptions, MongoStore};
                Arc::new(MongoStore::connect(url, MongoOptions::default().database(name)).await.unwrap())
            }
        }
    }

    pub(crate) async fn remove(self) {
        match self {
            Self::File { .. } => {}
            #[cfg(feature = "postgres")]
            Self::Schema { url, name } => {
                let mut server = sqlx::PgConnection::connect(&url).await.unwrap();
                let namespace = ratchet_store_core::Namespace::schema(name).unwrap();
                let dialect = ratchet_store_core::Dialect::Postgres;
                let drop = "DROP SCHEMA ratchet CASCADE";
                let drop = ratchet_store_core::Statement::compile(drop, dialect, &namespace).unwrap();
                sqlx::raw_sql(drop.sql()).execute(&mut server).await.unwrap();
            }
            #[cfg(feature = "mongodb")]
            Self::Database { url, name } => {
                let client = ratchet_store_mongodb::mongodb::Client::with_uri_str(url).await.unwrap();
                client.database(&name).drop().await.unwrap();
            }
        }
    }

    /// Writes values into a store that no store writes.
    pub(crate) async fn damage(&self, damage: Damage, job: JobId) {
        let changed = match self {
            Self::File { url, .. } => {
                let mut file = SqliteConnection::connect(&format!("sqlite:{url}")).await.unwrap();
                sqlx::raw_sql("PRAGMA ignore_check_constraints = on").execute(&mut file).await.unwrap();
                let update = sqlx::query(damage.sql()).bind(job.as_uuid());
                update.execute(&mut file).await.unwrap().rows_affected()
            }
            #[cfg(feature = "postgres")]
            Self::Schema { url, name } => {
                let mut server = sqlx::PgConnection::connect(url).await.unwrap();
                let path = sqlx::query("SELECT set_config('search_path', $1, false)").bind(name);
                path.execute(&mut server).await.unwrap();
                sqlx::raw_sql(WITHOUT_CHECKS).execute(&mut server).await.unwrap();
                let update = sqlx::query(damage.sql()).bind(job.as_uuid());
                update.execute(&mut server).await.unwrap().rows_affected()
            }
            #[cfg(feature = "mongodb")]
            Self::Database { url, name } => {
                use ratchet_store_mongodb::mongodb::Client;
                use ratchet_store_mongodb::mongodb::bson::{Document, Uuid, doc};
                let (collection, values) = damage.values();
                let filter = match damage {
                    Damage::Node => doc! {},
                    _ => doc! { "_id": Uuid::from_bytes(job.as_uuid().into_bytes()) },
                };
                let database = Client::with_uri_str(url).await.unwrap().database(name);
                let documents = database.collection::<Document>(collection);
                documents.update_one(filter, doc! { "$set": values }).await.unwrap().modified_count
            }
        };
        assert_eq!(changed, 1, "{damage:?}");
    }
}

/// Drops the schema's checks on values.
#[cfg(feature = "postgres")]
const WITHOUT_CHECKS: &str = "
    DO $$ DECLARE found record; BEGIN
        FOR found IN SELECT conrelid::regclass AS at, conname FROM pg_constraint
                     WHERE contype = 'c' AND connamespace = current_schema()::regnamespace
        LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', found.at, found.conname); END LOOP;
    END $$";

/// Damage that another program can do to a job, or to the only node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    Queue,
    Call,
    Backoff,
    Node,
}

impl Damage {
    const fn sql(self) -> &'static str {
        match self {
            Self::Queue => "UPDATE scheduler_job_queue SET queue = '' WHERE job_id = $1",
            Self::Call => "UPDATE scheduler_job SET target = '', max_retries = -1 WHERE job_id = $1",
            Self::Backoff => "UPDATE scheduler_job SET backoff_policy = 'NOBODY' WHERE job_id = $1",
            Self::Node => "UPDATE scheduler_node SET running = -1 WHERE $1 IS NOT NULL",
        }
    }

    #[cfg(feature = "mongodb")]
    fn values(self) -> (&'static str, ratchet_store_mongodb::mongodb::bson::Document) {
        use ratchet_store_mongodb::mongodb::bson::doc;
        match self {
            Self::Queue => ("scheduler_job", doc! { "queue.name": 7 }),
            Self::Call => ("scheduler_job", doc! { "spec.call.target": "" }),
            Self::Backoff => ("scheduler_job", doc! { "spec.backoff": "NOBODY" }),
            Self::Node => ("scheduler_node", doc! { "running": -1 }),
        }
    }
}
