//! Migrations on MySQL and MariaDB, where every change of a table commits by itself. Before a statement is sent, a note
//! in `ratchet_schema_progress` says that it is next; the module's documentation tells how a later run goes on.

use async_trait::async_trait;
use ratchet_api::{Timestamp, whole_millis};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqlStr};

use super::history::{Midway, Recorded, Survey, resume};
use super::script::checksum;
use super::session::{Limits, Session, Trouble, compile, lock_id};
use super::{MigrateError, Script, product, versions};
use crate::constraint::mysql_number;
use crate::{ConstraintDetector as _, Dialect, Namespace, params};

const DIALECT: Dialect = Dialect::MySql;
const TEXTS: &versions::Texts = versions::texts(DIALECT);

/// The table of notes; it exists only while a migration is not finished.
const PROGRESS: &str = "ratchet_schema_progress";

const PROGRESS_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS ratchet.ratchet_schema_progress (
    version   VARCHAR(20) NOT NULL PRIMARY KEY,
    done      BIGINT NOT NULL,
    in_flight BOOLEAN NOT NULL,
    checksum  VARCHAR(64) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

const NOTE: &str = "\
REPLACE INTO ratchet.ratchet_schema_progress (version, done, in_flight, checksum)
VALUES (:version, :done, :in_flight, :checksum)";

const NOTES: &str = "SELECT version, done, in_flight, checksum FROM ratchet.ratchet_schema_progress";
const FORGET: &str = "DELETE FROM ratchet.ratchet_schema_progress WHERE version = :version";
const NO_MORE_NOTES: &str = "DROP TABLE IF EXISTS ratchet.ratchet_schema_progress";

const TABLES: &str = "\
SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = coalesce(?, database())";

const HAS_SCHEMA: &str = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?";

/// Makes every server read the texts in the same way, whatever its configuration says about quotes and backslashes.
const SQL_MODE: &str = "\
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,\
NO_ENGINE_SUBSTITUTION'";

struct MySqlSession {
    connection: MySqlConnection,
    namespace: Namespace,
    limits: Limits,
    lock: String,
    folds_case: bool,
}

/// Opens a session. The lock's name contains the database, because locks belong to the whole server.
pub(super) async fn open(
    server: &MySqlConnectOptions,
    namespace: &Namespace,
    limits: Limits,
) -> Result<Box<dyn Session>, MigrateError> {
    let mut connection = server.connect().await.map_err(MigrateError::connect(DIALECT))?;
    let greeting = sqlx::query(
        "SELECT CONCAT(version(), ' ', @@version_comment), database(), @@lower_case_table_names > 0",
    );
    let row = greeting.fetch_one(&mut connection).await.map_err(MigrateError::connect(DIALECT))?;
    let found: String = row.try_get(0).map_err(MigrateError::connect(DIALECT))?;
    if !product::is_supported(DIALECT, &found) {
        return Err(MigrateError::Product { found });
    }
    let current: Option<String> = row.try_get(1).map_err(MigrateError::connect(DIALECT))?;
    let place = namespace.schema_name().or(current.as_deref()).unwrap_or_default();
    let lock = format!("ratchet_schema_migration_{:016x}", lock_id(&[place, &namespace.to_string()]));
    let folds_case = row.try_get(2).map_err(MigrateError::connect(DIALECT))?;
    let mut session = MySqlSession { connection, namespace: namespace.clone(), limits, lock, folds_case };
    session.configure().await.map_err(MigrateError::connect(DIALECT))?;
    Ok(Box::new(session))
}

impl MySqlSession {
    async fn configure(&mut self) -> sqlx::Result<()> {
        self.raw(SQL_MODE).await?;
        // One setting for changes of tables, one for changes of rows.
        let wait = seconds(self.limits.table_wait);
        for setting in ["SET SESSION lock_wait_timeout = ?", "SET SESSION innodb_lock_wait_timeout = ?"] {
            sqlx::query(setting).bind(wait).execute(&mut self.connection).await?;
        }
        Ok(())
    }

    async fn raw(&mut self, text: &'static str) -> sqlx::Result<()> {
        sqlx::raw_sql(text).execute(&mut self.connection).await.map(drop)
    }

    /// Runs one of the migrator's own texts that has no parameters.
    async fn plain(&mut self, text: &'static str) -> sqlx::Result<()> {
        let text = compile(text, DIALECT, &self.namespace)?.sql();
        sqlx::raw_sql(text).execute(&mut self.connection).await.map(drop)
    }

    async fn has_schema(&mut self, name: &str) -> sqlx::Result<bool> {
        let count: i64 = sqlx::query_scalar(HAS_SCHEMA).bind(name).fetch_one(&mut self.connection).await?;
        Ok(count > 0)
    }

    async fn note(&mut self, midway: &Midway) -> sqlx::Result<()> {
        let query = sqlx::query(compile(NOTE, DIALECT, &self.namespace)?.sql())
            .bind(&midway.version)
            .bind(i64::try_from(midway.done).unwrap_or(i64::MAX))
            .bind(midway.in_flight)
            .bind(&midway.checksum);
        query.execute(&mut self.connection).await.map(drop)
    }

    /// Runs a change of rows, committed together with the note that it is done.
    async fn change_rows(&mut self, statement: &SqlStr, done: &Midway) -> sqlx::Result<()> {
        self.raw("START TRANSACTION").await?;
        let changed = async {
            sqlx::raw_sql(statement.clone()).execute(&mut self.connection).await?;
            self.note(done).await?;
            self.raw("COMMIT").await
        };
        let result = changed.await;
        if result.is_err() {
            let _ = self.raw("ROLLBACK").await;
        }
        result
    }

    /// Runs any other statement: it commits by itself, between a note that it may have happened and one that it did.
    async fn change_table(
        &mut self,
        statement: &SqlStr,
        before: &Midway,
        done: &Midway,
        again: bool,
    ) -> sqlx::Result<()> {
        self.note(&Midway { in_flight: true, ..before.clone() }).await?;
        match sqlx::raw_sql(statement.clone()).execute(&mut self.connection).await {
            Err(error) if !(again && says_already_done(&error)) => {
                // A clear refusal takes back the note, unless an earlier run sent the statement too: that result stays
                // unknown.
                if !again && is_plain_no(&error) {
                    self.note(before).await?;
                }
                Err(error)
            }
            _ => self.note(done).await,
        }
    }
}

/// Rounds up to whole seconds, in which MySQL counts these waits.
fn seconds(wait: std::time::Duration) -> i64 {
    (whole_millis(wait).saturating_add(999) / 1000).max(1)
}

/// Whether the server says that it did not execute the statement. If it was shutting down, or did not answer, that is
/// unknown.
fn is_plain_no(error: &sqlx::Error) -> bool {
    DIALECT.is_lost_race(error) || (error.as_database_error().is_some() && !DIALECT.is_transient(error))
}

/// Whether the server says that a change of a table was made before.
fn says_already_done(error: &sqlx::Error) -> bool {
    // Database, table, column or key exists (1007, 1050, 1060, 1061, 1826, 3822); a second primary key (1068);
    // table, column or key is not there to be dropped or renamed (1008, 1051, 1054, 1091, 1146, 3821, 3940).
    const CODES: [u16; 14] =
        [1007, 1008, 1050, 1051, 1054, 1060, 1061, 1068, 1091, 1146, 1826, 3821, 3822, 3940];
    error.as_database_error().and_then(mysql_number).is_some_and(|number| CODES.contains(&number))
}

fn recorded(row: &MySqlRow) -> sqlx::Result<Recorded> {
    Ok(Recorded {
        version: row.try_get("version")?,
        description: row.try_get("description")?,
        applied_at: Timestamp::from_millis(row.try_get("applied_at")?),
        checksum: row.try_get("checksum")?,
    })
}

fn midway(row: &MySqlRow) -> sqlx::Result<Midway> {
    Ok(Midway {
        version: row.try_get("version")?,
        done: usize::try_from(row.try_get::<i64, _>("done")?).unwrap_or_default(),
        in_flight: row.try_get("in_flight")?,
        checksum: row.try_get("checksum")?,
    })
}

#[async_trait]
impl Session for MySqlSession {
    async fn lock(&mut self) -> sqlx::Result<bool> {
        let query =
            sqlx::query_scalar("SELECT GET_LOCK(?, ?)").bind(&self.lock).bind(seconds(self.limits.lock_wait));
        let taken: Option<i64> = query.fetch_one(&mut self.connection).await?;
        Ok(taken == Some(1))
    }

    async fn survey(&mut self) -> sqlx::Result<Survey> {
        let tables: Vec<String> = sqlx::query_scalar(TABLES)
            .bind(self.namespace.schema_name())
            .fetch_all(&mut self.connection)
            .await?;
        let mut survey = Survey::new(tables, self.folds_case);
        if survey.has_table(&self.namespace.table(versions::NAME)) {
            let query = sqlx::query(compile(TEXTS.recorded, DIALECT, &self.namespace)?.sql());
            let rows = query.fetch_all(&mut self.connection).await?;
            survey.recorded = rows.iter().map(recorded).collect::<Result<_, _>>()?;
        }
        if survey.has_table(&self.namespace.table(PROGRESS)) {
            let query = sqlx::query(compile(NOTES, DIALECT, &self.namespace)?.sql());
            let row = query.fetch_optional(&mut self.connection).await?;
            survey.midway = row.as_ref().map(midway).transpose()?;
        }
        Ok(survey)
    }

    async fn prepare(&mut self, survey: &Survey) -> sqlx::Result<()> {
        // Checked first: creating a database needs a right that only its first user must have.
        if let Some(name) = self.namespace.schema_name().map(str::to_owned)
            && let Some(schema) = TEXTS.schema
            && !self.has_schema(&name).await?
        {
            self.plain(schema).await?;
        }
        if !survey.has_table(&self.namespace.table(versions::NAME)) {
            self.plain(TEXTS.table).await?;
        }
        if !survey.has_table(&self.namespace.table(PROGRESS)) {
            self.plain(PROGRESS_TABLE).await?;
        }
        Ok(())
    }

    async fn run(&mut self, script: &Script, survey: &Survey) -> Result<(), Trouble> {
        let statements = params::statements(script.sql, DIALECT, &self.namespace)?;
        let texts: Vec<&str> = statements.iter().map(SqlStr::as_str).collect();
        let midway = survey.midway.as_ref();
        let first = resume(script, &texts, midway).map_err(Trouble::Refused)?;
        for (at, statement) in statements.iter().enumerate().skip(first) {
            let note = |done| Midway {
                version: script.version.to_string(),
                done,
                in_flight: false,
                checksum: checksum(&texts[..done]),
            };
            let again = at == first && midway.is_some_and(|midway| midway.in_flight);
            let outcome = if params::changes_rows(statement, DIALECT) {
                self.change_rows(statement, &note(at + 1)).await
            } else {
                self.change_table(statement, &note(at), &note(at + 1), again).await
            };
            outcome.map_err(|source| Trouble::Server { statement: Some(at + 1), source })?;
        }
        Ok(())
    }

    async fn record(&mut self, script: &Script) -> sqlx::Result<()> {
        let version = script.version.to_string();
        self.raw("START TRANSACTION").await?;
        let record = sqlx::query(compile(TEXTS.record, DIALECT, &self.namespace)?.sql())
            .bind(&version)
            .bind(&script.description)
            .bind(script.checksum());
        record.execute(&mut self.connection).await?;
        let forget = sqlx::query(compile(FORGET, DIALECT, &self.namespace)?.sql()).bind(&version);
        forget.execute(&mut self.connection).await?;
        self.raw("COMMIT").await
    }

    async fn commit(&mut self) -> sqlx::Result<()> {
        let query = sqlx::query("DO RELEASE_LOCK(?)").bind(&self.lock);
        query.execute(&mut self.connection).await.map(drop)
    }

    async fn abandon(&mut self) -> sqlx::Result<()> {
        self.raw("ROLLBACK").await?;
        self.commit().await
    }

    async fn tidy(&mut self, survey: &Survey) -> sqlx::Result<()> {
        if survey.has_table(&self.namespace.table(PROGRESS)) {
            self.plain(NO_MORE_NOTES).await?;
        }
        self.commit().await
    }

    async fn close(self: Box<Self>) {
        let _ = self.connection.close().await;
    }
}
