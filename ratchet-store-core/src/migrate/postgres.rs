//! Migrations on PostgreSQL. A script is one transaction, and so is everything around it: the lock, the look at what is
//! there, the record. That also holds behind a pooler that hands out connections by transaction.

use async_trait::async_trait;
use ratchet_api::{Timestamp, whole_millis};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use super::history::{Recorded, Survey};
use super::session::{Limits, Session, Trouble, compile, lock_id};
use super::{MigrateError, Script, product, versions};
use crate::{ConstraintDetector as _, Dialect, Namespace, params};

const DIALECT: Dialect = Dialect::Postgres;
const TEXTS: &versions::Texts = versions::texts(DIALECT);

const TABLES: &str = "\
SELECT c.relname::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = coalesce($1, current_schema()) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')";

const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)";

/// A server that does not look would go on with a long statement, holding the lock, for a client that is gone.
const NOTICE_DEATH: &str = "\
SAVEPOINT ratchet_setting;
SELECT set_config(name, '2s', true) FROM pg_settings WHERE name = 'client_connection_check_interval'";

struct PgSession {
    connection: PgConnection,
    namespace: Namespace,
    limits: Limits,
}

/// Opens a session. Statements are not kept: behind a pooler the next transaction may be on another connection.
pub(super) async fn open(
    server: &PgConnectOptions,
    namespace: &Namespace,
    limits: Limits,
) -> Result<Box<dyn Session>, MigrateError> {
    let server = server.clone().statement_cache_capacity(0);
    let mut connection = server.connect().await.map_err(MigrateError::Connect)?;
    let found: String = sqlx::query_scalar("SELECT version()")
        .fetch_one(&mut connection)
        .await
        .map_err(MigrateError::Connect)?;
    if !product::is_supported(DIALECT, &found) {
        return Err(MigrateError::Product { found });
    }
    Ok(Box::new(PgSession { connection, namespace: namespace.clone(), limits }))
}

impl PgSession {
    async fn raw(&mut self, text: &'static str) -> sqlx::Result<()> {
        sqlx::raw_sql(text).execute(&mut self.connection).await.map(drop)
    }

    /// For this transaction.
    async fn set(&mut self, name: &str, value: String) -> sqlx::Result<()> {
        let query = sqlx::query("SELECT set_config($1, $2, true)").bind(name).bind(value);
        query.execute(&mut self.connection).await.map(drop)
    }

    async fn has_schema(&mut self, name: &str) -> sqlx::Result<bool> {
        sqlx::query_scalar(HAS_SCHEMA).bind(name).fetch_one(&mut self.connection).await
    }
}

fn recorded(row: &PgRow) -> sqlx::Result<Recorded> {
    Ok(Recorded {
        version: row.try_get("version")?,
        description: row.try_get("description")?,
        applied_at: Timestamp::from_millis(row.try_get("applied_at")?),
        checksum: row.try_get("checksum")?,
    })
}

#[async_trait]
impl Session for PgSession {
    async fn lock(&mut self) -> sqlx::Result<bool> {
        self.raw("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        // Not every system can tell that a client is gone.
        if self.raw(NOTICE_DEATH).await.is_err() {
            self.raw("ROLLBACK TO SAVEPOINT ratchet_setting").await?;
        }
        // What is right for the queries of an application may be too short for a change of a big table.
        self.set("statement_timeout", "0".to_owned()).await?;
        self.set("lock_timeout", whole_millis(self.limits.lock_wait).max(1).to_string()).await?;
        let key = lock_id(&[&self.namespace.to_string()]);
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(key);
        match lock.execute(&mut self.connection).await {
            Ok(_) => {
                self.set("lock_timeout", whole_millis(self.limits.table_wait).max(1).to_string()).await?;
                Ok(true)
            }
            Err(error) if DIALECT.is_lost_race(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn survey(&mut self) -> sqlx::Result<Survey> {
        let tables: Vec<String> = sqlx::query_scalar(TABLES)
            .bind(self.namespace.schema_name())
            .fetch_all(&mut self.connection)
            .await?;
        let mut survey = Survey { tables: tables.into_iter().collect(), ..Survey::default() };
        if survey.has_table(&self.namespace.table(versions::NAME)) {
            let query = sqlx::query(compile(TEXTS.recorded, DIALECT, &self.namespace)?.sql());
            let rows = query.fetch_all(&mut self.connection).await?;
            survey.recorded = rows.iter().map(recorded).collect::<Result<_, _>>()?;
        }
        Ok(survey)
    }

    async fn prepare(&mut self, survey: &Survey) -> sqlx::Result<()> {
        // Asked for first: creating a schema needs a right that only its first user must have.
        if let Some(name) = self.namespace.schema_name().map(str::to_owned)
            && let Some(schema) = TEXTS.schema
            && !self.has_schema(&name).await?
        {
            sqlx::query(compile(schema, DIALECT, &self.namespace)?.sql())
                .execute(&mut self.connection)
                .await?;
        }
        if !survey.has_table(&self.namespace.table(versions::NAME)) {
            sqlx::query(compile(TEXTS.table, DIALECT, &self.namespace)?.sql())
                .execute(&mut self.connection)
                .await?;
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
