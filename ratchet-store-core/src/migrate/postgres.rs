//! Migrations on PostgreSQL. A script is one transaction together with everything around it: the lock, the survey, the
//! record. This also works behind a pooler that assigns connections per transaction.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::{Timestamp, whole_millis};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use super::history::{Recorded, Survey};
use super::session::{Limits, Session, Trouble, compile, lock_id};
use super::{MigrateError, Script, Unusable, product, versions};
use crate::{ConstraintDetector as _, Dialect, Namespace, params};

const DIALECT: Dialect = Dialect::Postgres;
const TEXTS: &versions::Texts = versions::texts(DIALECT);

const TABLES: &str = "\
SELECT c.relname::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = coalesce($1, current_schema()) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')";

const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)";

/// The state of the server and the database.
const SERVER: &str = "\
SELECT pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only,
    current_setting('server_encoding') AS encoding";

/// The rights on these tables that the user lacks. A view is only read.
const LACKING: &str = "\
SELECT p.name || ' on ' || c.relname
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY p (name, place)
WHERE n.nspname = coalesce($1, current_schema()) AND c.relname = ANY ($2)
    AND (c.relkind IN ('r', 'p') OR c.relkind = 'v' AND p.name = 'SELECT')
    AND NOT has_table_privilege(c.oid, p.name)
ORDER BY c.relname, p.place";

/// Makes the server check for its client: otherwise it would go on with a long statement, holding the lock, for a
/// client that is gone.
const NOTICE_DEATH: &str = "\
SAVEPOINT ratchet_setting;
SELECT set_config(name, '2s', true) FROM pg_settings WHERE name = 'client_connection_check_interval'";

struct PgSession {
    connection: PgConnection,
    namespace: Namespace,
    limits: Limits,
    in_transaction: bool,
}

/// Opens a session. Statements have no names (`persistent(false)`): behind a pooler, connections and names are shared.
pub(super) async fn open(
    server: &PgConnectOptions,
    namespace: &Namespace,
    limits: Limits,
) -> Result<Box<dyn Session>, MigrateError> {
    let mut connection = server.connect().await.map_err(MigrateError::connect(DIALECT))?;
    // In one message: outside of a transaction, a pooler may send the next message to another connection.
    let greeting = sqlx::raw_sql("SELECT version()").fetch_one(&mut connection).await;
    let found: String = greeting.and_then(|row| row.try_get(0)).map_err(MigrateError::connect(DIALECT))?;
    if !product::is_supported(DIALECT, &found) {
        return Err(MigrateError::Product { found });
    }
    Ok(Box::new(PgSession { connection, namespace: namespace.clone(), limits, in_transaction: false }))
}

impl PgSession {
    async fn raw(&mut self, text: &'static str) -> sqlx::Result<()> {
        sqlx::raw_sql(text).execute(&mut self.connection).await.map(drop)
    }

    async fn begin(&mut self, text: &'static str) -> sqlx::Result<()> {
        self.raw(text).await?;
        self.in_transaction = true;
        Ok(())
    }

    async fn end(&mut self, text: &'static str) -> sqlx::Result<()> {
        self.in_transaction = false;
        self.raw(text).await
    }

    /// Changes a setting for this transaction.
    async fn set(&mut self, name: &str, value: String) -> sqlx::Result<()> {
        let query = sqlx::query("SELECT set_config($1, $2, true)").persistent(false).bind(name).bind(value);
        query.execute(&mut self.connection).await.map(drop)
    }

    async fn set_lock_timeout(&mut self, wait: Duration) -> sqlx::Result<()> {
        // Zero would mean no timeout.
        self.set("lock_timeout", whole_millis(wait).max(1).to_string()).await
    }

    async fn read(&mut self) -> sqlx::Result<Survey> {
        let tables = sqlx::query_scalar(TABLES).persistent(false).bind(self.namespace.schema_name());
        let mut survey = Survey::new(tables.fetch_all(&mut self.connection).await?, false);
        if survey.has_table(&self.namespace.table(versions::NAME)) {
            let query =
                sqlx::query(compile(TEXTS.recorded, DIALECT, &self.namespace)?.sql()).persistent(false);
            let rows = query.fetch_all(&mut self.connection).await?;
            survey.recorded = rows.iter().map(recorded).collect::<Result<_, _>>()?;
        }
        Ok(survey)
    }

    /// Runs one of the migrator's own texts that has no parameters.
    async fn plain(&mut self, text: &'static str) -> sqlx::Result<()> {
        let text = compile(text, DIALECT, &self.namespace)?.sql();
        sqlx::raw_sql(text).execute(&mut self.connection).await.map(drop)
    }

    /// Checks the encoding, the write access and the user's rights. Runs inside a transaction, so that a pooler sends
    /// no query elsewhere.
    async fn lacks(&mut self, tables: &[String]) -> sqlx::Result<Option<Unusable>> {
        let server = sqlx::query(SERVER).persistent(false).fetch_one(&mut self.connection).await?;
        let encoding: String = server.try_get("encoding")?;
        if encoding != "UTF8" {
            return Ok(Some(Unusable::Encoding { encoding }));
        }
        if server.try_get("standby")? {
            return Ok(Some(Unusable::Standby));
        }
        if server.try_get("read_only")? {
            return Ok(Some(Unusable::ReadOnly));
        }
        let lacking = sqlx::query_scalar(LACKING).persistent(false);
        let lacking = lacking.bind(self.namespace.schema_name()).bind(tables);
        let lacking: Vec<String> = lacking.fetch_all(&mut self.connection).await?;
        Ok((!lacking.is_empty()).then_some(Unusable::NoGrant { lacking }))
    }

    async fn has_schema(&mut self, name: &str) -> sqlx::Result<bool> {
        sqlx::query_scalar(HAS_SCHEMA).persistent(false).bind(name).fetch_one(&mut self.connection).await
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
        self.begin("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        // Not every system can detect that a client is gone.
        if self.raw(NOTICE_DEATH).await.is_err() {
            self.raw("ROLLBACK TO SAVEPOINT ratchet_setting").await?;
        }
        // A timeout that suits an application's queries may be too short for a change of a big table.
        self.set("statement_timeout", "0".to_owned()).await?;
        self.set_lock_timeout(self.limits.lock_wait).await?;
        let key = lock_id(&[&self.namespace.to_string()]);
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").persistent(false).bind(key);
        match lock.execute(&mut self.connection).await {
            Ok(_) => self.set_lock_timeout(self.limits.table_wait).await.map(|()| true),
            Err(error) if DIALECT.is_lost_race(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn unusable(&mut self, tables: &[String]) -> sqlx::Result<Option<Unusable>> {
        self.begin("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let unusable = self.lacks(tables).await?;
        self.end("COMMIT").await?;
        Ok(unusable)
    }

    async fn survey(&mut self) -> sqlx::Result<Survey> {
        if self.in_transaction {
            return self.read().await;
        }
        self.begin("BEGIN READ ONLY").await?;
        let survey = self.read().await?;
        self.end("COMMIT").await?;
        Ok(survey)
    }

    async fn prepare(&mut self, survey: &Survey) -> sqlx::Result<()> {
        // Checked first: creating a schema needs a right that only its first user must have.
        if let Some(name) = self.namespace.schema_name().map(str::to_owned)
            && let Some(schema) = TEXTS.schema
            && !self.has_schema(&name).await?
        {
            self.plain(schema).await?;
        }
        if !survey.has_table(&self.namespace.table(versions::NAME)) {
            self.plain(TEXTS.table).await?;
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
            .persistent(false)
            .bind(script.version.to_string())
            .bind(&script.description)
            .bind(script.checksum());
        query.execute(&mut self.connection).await.map(drop)
    }

    async fn commit(&mut self) -> sqlx::Result<()> {
        self.end("COMMIT").await
    }

    async fn abandon(&mut self) -> sqlx::Result<()> {
        self.end("ROLLBACK").await
    }

    async fn tidy(&mut self, _: &Survey) -> sqlx::Result<()> {
        self.end("COMMIT").await
    }

    async fn close(self: Box<Self>) {
        let _ = self.connection.close().await;
    }
}
