//! PostgreSQL, and PgBouncer in front of it.

use std::str::FromStr as _;

use anyhow::Result;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Row as _};

use super::{TIMEOUT, ask};

/// SQLSTATE of a database that does not exist.
const INVALID_CATALOG_NAME: &str = "3D000";

/// Logs in and returns the version of the server.
pub(crate) fn version(url: &str) -> Result<String> {
    let options = options(url)?;
    ask(TIMEOUT, async { Ok(fetch(&options, "SHOW server_version").await?) })
}

/// Logs in to the console of PgBouncer and returns its version, as in `PgBouncer 1.18.0`.
pub(crate) fn pgbouncer_version(url: &str) -> Result<String> {
    let options = options(url)?.database("pgbouncer");
    ask(TIMEOUT, async { Ok(fetch(&options, "SHOW VERSION").await?) })
}

/// Creates the database `ratchet` if it does not exist.
pub(crate) fn ensure_database(url: &str) -> Result<()> {
    let options = options(url)?;
    ask(TIMEOUT, async {
        match PgConnection::connect_with(&options).await {
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(INVALID_CATALOG_NAME) => {
                let mut connection = PgConnection::connect_with(&options.database("postgres")).await?;
                sqlx::raw_sql("CREATE DATABASE ratchet").execute(&mut connection).await?;
                Ok(connection.close().await?)
            }
            connection => Ok(connection?.close().await?),
        }
    })
}

/// PgBouncer supports neither this startup parameter nor statements prepared on another connection.
fn options(url: &str) -> Result<PgConnectOptions> {
    Ok(PgConnectOptions::from_str(url)?.extra_float_digits(None).statement_cache_capacity(0))
}

/// The first column of the first row, by the simple protocol: PgBouncer's console supports no other.
async fn fetch(options: &PgConnectOptions, sql: &'static str) -> sqlx::Result<String> {
    let mut connection = PgConnection::connect_with(options).await?;
    let value = sqlx::raw_sql(sql).fetch_one(&mut connection).await?.try_get(0)?;
    connection.close().await?;
    Ok(value)
}
