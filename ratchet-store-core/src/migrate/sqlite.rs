//! Migrations on SQLite. `BEGIN IMMEDIATE` is the lock: there is one writer at a time, and a script is one transaction.

use async_trait::async_trait;
use ratchet_api::Timestamp;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use super::history::{Recorded, Survey};
use super::session::{Limits, Session, Trouble, compile};
use super::{MigrateError, Script, product, versions};
use crate::{ConstraintDetector as _, Dialect, Namespace, params};

const DIALECT: Dialect = Dialect::Sqlite;
const TEXTS: &versions::Texts = versions::texts(DIALECT);

const TABLES: &str = "SELECT name FROM pragma_table_list WHERE schema = coalesce(?1, 'main')";

struct SqliteSession {
    connection: SqliteConnection,
    namespace: Namespace,
}

/// Opens a session. Its busy timeout is the time to wait for the lock.
pub(super) async fn open(
    file: &SqliteConnectOptions,
    namespace: &Namespace,
    limits: Limits,
) -> Result<Box<dyn Session>, MigrateError> {
    let file = file.clone().busy_timeout(limits.lock_wait);
    let mut connection = file.connect().await.map_err(MigrateError::connect(DIALECT))?;
    let version = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection);
    let found: String = version.await.map_err(MigrateError::connect(DIALECT))?;
    if !product::is_supported(DIALECT, &found) {
        return Err(MigrateError::Product { found });
    }
    Ok(Box::new(SqliteSession { connection, namespace: namespace.clone() }))
}

impl SqliteSession {
    async fn raw(&mut self, text: &'static str) -> sqlx::Result<()> {
        sqlx::raw_sql(text).execute(&mut self.connection).await.map(drop)
    }
}

fn recorded(row: &SqliteRow) -> sqlx::Result<Recorded> {
    Ok(Recorded {
        version: row.try_get("version")?,
        description: row.try_get("description")?,
        applied_at: Timestamp::from_millis(row.try_get("applied_at")?),
        checksum: row.try_get("checksum")?,
    })
}

#[async_trait]
impl Session for SqliteSession {
    async fn lock(&mut self) -> sqlx::Result<bool> {
        match self.raw("BEGIN IMMEDIATE").await {
            Ok(()) => Ok(true),
            Err(error) if DIALECT.is_lost_race(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn survey(&mut self) -> sqlx::Result<Survey> {
        let tables: Vec<String> = sqlx::query_scalar(TABLES)
            .bind(self.namespace.schema_name())
            .fetch_all(&mut self.connection)
            .await?;
        let mut survey = Survey::new(tables, true);
        if survey.has_table(&self.namespace.table(versions::NAME)) {
            let query = sqlx::query(compile(TEXTS.recorded, DIALECT, &self.namespace)?.sql());
            let rows = query.fetch_all(&mut self.connection).await?;
            survey.recorded = rows.iter().map(recorded).collect::<Result<_, _>>()?;
        }
        Ok(survey)
    }

    async fn prepare(&mut self, survey: &Survey) -> sqlx::Result<()> {
        if !survey.has_table(&self.namespace.table(versions::NAME)) {
            let table = compile(TEXTS.table, DIALECT, &self.namespace)?;
            sqlx::query(table.sql()).execute(&mut self.connection).await?;
        }
        Ok(())
    }

    async fn run(&mut self, script: &Script, _: &Survey) -> Result<(), Trouble> {
        let text = params::script(script.sql, DIALECT, &self.namespace)?;
        sqlx::raw_sql(text).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn record(&mut self, script: &Script) -> sqlx::Result<()> {
        let query = sqlx::query(compile(TEXTS.record, DIALECT, &self.namespace)?.sql())
            .bind(script.version.to_string())
            .bind(&script.description)
            .bind(script.checksum());
        query.execute(&mut self.connection).await.map(drop)
    }

    async fn commit(&mut self) -> sqlx::Result<()> {
        self.raw("COMMIT").await
    }

    async fn abandon(&mut self) -> sqlx::Result<()> {
        self.raw("ROLLBACK").await
    }

    async fn tidy(&mut self, _: &Survey) -> sqlx::Result<()> {
        self.raw("COMMIT").await
    }

    async fn close(self: Box<Self>) {
        let _ = self.connection.close().await;
    }
}
