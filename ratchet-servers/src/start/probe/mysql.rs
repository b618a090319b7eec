//! MySQL and MariaDB.

use std::str::FromStr as _;

use anyhow::Result;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError};
use sqlx::{Connection as _, Row as _};

use super::{TIMEOUT, ask};

/// Error number of a database that does not exist.
const ER_BAD_DB_ERROR: u16 = 1049;

/// Logs in and returns the version of the server.
pub(crate) fn version(url: &str) -> Result<String> {
    let options = MySqlConnectOptions::from_str(url)?;
    ask(TIMEOUT, async {
        let mut connection = MySqlConnection::connect_with(&options).await?;
        let version = sqlx::raw_sql("SELECT VERSION()").fetch_one(&mut connection).await?.try_get(0)?;
        connection.close().await?;
        Ok(version)
    })
}

/// Creates the database `ratchet` if it does not exist. The URL is one of ours: its user is `root`.
pub(crate) fn ensure_database(url: &str) -> Result<()> {
    let options = MySqlConnectOptions::from_str(url)?;
    ask(TIMEOUT, async {
        match MySqlConnection::connect_with(&options).await {
            Err(error) if is_missing_database(&error) => {
                let mut connection = MySqlConnection::connect_with(&options.database("mysql")).await?;
                let create = sqlx::raw_sql("CREATE DATABASE ratchet CHARACTER SET utf8mb4");
                create.execute(&mut connection).await?;
                Ok(connection.close().await?)
            }
            connection => Ok(connection?.close().await?),
        }
    })
}

fn is_missing_database(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == ER_BAD_DB_ERROR)
}
