//! A namespace of its own on a real server, and access to it that does not go through the migrator.

use std::future::Future;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ratchet_servers::Server;
use ratchet_store_core::migrate::Scripts;
use ratchet_store_core::{Dialect, Namespace, SchemaMigrator, Statement};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, SqlStr};
use tempfile::TempDir;

/// A database that the migrator supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    Postgres,
    MySql,
    MariaDb,
    Sqlite,
}

impl Product {
    pub(crate) const ALL: [Self; 4] = [Self::Postgres, Self::MySql, Self::MariaDb, Self::Sqlite];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::MariaDb => "mariadb",
            Self::Sqlite => "sqlite",
        }
    }

    pub(crate) const fn dialect(self) -> Dialect {
        match self {
            Self::Postgres => Dialect::Postgres,
            Self::MySql | Self::MariaDb => Dialect::MySql,
            Self::Sqlite => Dialect::Sqlite,
        }
    }

    /// Whether a script can be undone as a whole.
    pub(crate) fn undoes_scripts(self) -> bool {
        self.dialect() != Dialect::MySql
    }

    /// The server of a product that has one.
    pub(crate) fn server(self) -> Server {
        match self {
            Self::Postgres => Server::Postgres,
            Self::MySql => Server::Mysql,
            Self::MariaDb => Server::Mariadb,
            Self::Sqlite => panic!("SQLite has no server"),
        }
    }

    fn url(self) -> String {
        ratchet_servers::url(self.server()).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The place of one test: a schema, a database or a file.
#[derive(Clone)]
pub(crate) struct TestDatabase {
    pub(crate) product: Product,
    pub(crate) namespace: Namespace,
    /// The name of the schema or database.
    pub(crate) name: String,
    file: PathBuf,
    _folder: Option<Arc<TempDir>>,
}

impl TestDatabase {
    pub(crate) fn new(product: Product) -> Self {
        let folder = tempfile::tempdir().expect("a folder for a file of SQLite");
        let name = format!("migrate_{:08x}", rand::random::<u32>());
        let file = folder.path().join("jobs.db");
        Self { _folder: Some(Arc::new(folder)), ..Self::at(product, name, file) }
    }

    /// The place that another process was started for.
    pub(crate) fn at(product: Product, name: String, file: PathBuf) -> Self {
        let namespace = match product {
            Product::Sqlite => Namespace::bare(),
            _ => Namespace::schema(name.as_str()).expect("a plain name"),
        };
        Self { product, namespace, name, file, _folder: None }
    }

    /// A second place, for comparison. It is cleared together with this one.
    pub(crate) fn twin(&self) -> Self {
        let twin = Self::at(self.product, format!("{}_twin", self.name), self.file.with_file_name("twin.db"));
        Self { _folder: self._folder.clone(), ..twin }
    }

    pub(crate) fn file(&self) -> &PathBuf {
        &self.file
    }

    pub(crate) fn migrator(&self, files: &[(&str, &'static str)]) -> SchemaMigrator {
        self.migrator_in(self.namespace.clone(), files)
    }

    pub(crate) fn migrator_in(&self, namespace: Namespace, files: &[(&str, &'static str)]) -> SchemaMigrator {
        let scripts = Scripts::new(files).expect("scripts");
        match self.product {
            Product::Postgres => SchemaMigrator::postgres(self.postgres(), namespace, scripts),
            Product::MySql | Product::MariaDb => SchemaMigrator::mysql(self.mysql(), namespace, scripts),
            Product::Sqlite => SchemaMigrator::sqlite(self.sqlite(), namespace, scripts),
        }
    }

    pub(crate) fn postgres(&self) -> PgConnectOptions {
        PgConnectOptions::from_str(&self.product.url()).expect("a URL of PostgreSQL")
    }

    pub(crate) fn mysql(&self) -> MySqlConnectOptions {
        MySqlConnectOptions::from_str(&self.product.url()).expect("a URL of MySQL")
    }

    fn sqlite(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new().filename(&self.file).create_if_missing(true)
    }

    pub(crate) async fn connect(&self) -> Client {
        let connection = match self.product {
            Product::Postgres => Connection::Postgres(self.postgres().connect().await.expect("PostgreSQL")),
            Product::MySql | Product::MariaDb => {
                Connection::MySql(self.mysql().connect().await.expect("MySQL or MariaDB"))
            }
            Product::Sqlite => Connection::Sqlite(self.sqlite().connect().await.expect("a file of SQLite")),
        };
        Client { connection, namespace: self.namespace.clone() }
    }

    /// Removes everything from the server.
    pub(crate) async fn clear(&self) {
        let mut client = self.connect().await;
        match self.product {
            Product::Postgres => client.run("DROP SCHEMA IF EXISTS ratchet CASCADE").await,
            Product::MySql | Product::MariaDb => client.run("DROP DATABASE IF EXISTS ratchet").await,
            Product::Sqlite => {}
        }
    }
}

/// A connection beside the migrator's.
pub(crate) struct Client {
    connection: Connection,
    namespace: Namespace,
}

enum Connection {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Client {
    fn compile(&self, text: &'static str) -> SqlStr {
        let dialect = match self.connection {
            Connection::Postgres(_) => Dialect::Postgres,
            Connection::MySql(_) => Dialect::MySql,
            Connection::Sqlite(_) => Dialect::Sqlite,
        };
        Statement::compile(text, dialect, &self.namespace).expect("a good text").sql()
    }

    /// Uses the tables of another namespace.
    pub(crate) fn within(mut self, namespace: &Namespace) -> Self {
        self.namespace = namespace.clone();
        self
    }

    pub(crate) async fn try_run(&mut self, text: &'static str) -> sqlx::Result<()> {
        let text = sqlx::raw_sql(self.compile(text));
        match &mut self.connection {
            Connection::Postgres(connection) => text.execute(connection).await.map(drop),
            Connection::MySql(connection) => text.execute(connection).await.map(drop),
            Connection::Sqlite(connection) => text.execute(connection).await.map(drop),
        }
    }

    pub(crate) async fn run(&mut self, text: &'static str) {
        self.try_run(text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// The one number that a query gives; `name` is bound to each of its parameters.
    pub(crate) async fn number(&mut self, text: &'static str, names: &[&str]) -> i64 {
        let sql = self.compile(text);
        macro_rules! fetch {
            ($connection:expr) => {{
                let mut query = sqlx::query_scalar(sql);
                for name in names {
                    query = query.bind(*name);
                }
                query.fetch_one($connection).await
            }};
        }
        let number = match &mut self.connection {
            Connection::Postgres(connection) => fetch!(connection),
            Connection::MySql(connection) => fetch!(connection),
            Connection::Sqlite(connection) => fetch!(connection),
        };
        number.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The first column of every row of a query; `names` are bound in their order.
    pub(crate) async fn texts(&mut self, text: &'static str, names: &[&str]) -> Vec<String> {
        let sql = self.compile(text);
        macro_rules! fetch {
            ($connection:expr) => {{
                let mut query = sqlx::query_scalar(sql);
                for name in names {
                    query = query.bind(*name);
                }
                query.fetch_all($connection).await
            }};
        }
        let texts = match &mut self.connection {
            Connection::Postgres(connection) => fetch!(connection),
            Connection::MySql(connection) => fetch!(connection),
            Connection::Sqlite(connection) => fetch!(connection),
        };
        texts.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// How many rows a table has; `None` if there is no such table.
    pub(crate) async fn rows(&mut self, count: &'static str) -> Option<i64> {
        match self.try_run(count).await {
            Ok(()) => Some(self.number(count, &[]).await),
            Err(_) => None,
        }
    }

    /// The versions that are recorded with a checksum.
    pub(crate) async fn versions(&mut self) -> i64 {
        let recorded = "SELECT count(*) FROM ratchet.ratchet_schema_version WHERE length(checksum) = 64";
        self.number(recorded, &[]).await
    }
}

/// Waits until a condition holds, by asking again. Fails after a minute, which is far beyond the usual time.
pub(crate) async fn eventually<F>(what: &str, mut is_so: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}
