//! PgBouncer in transaction mode in front of our PostgreSQL, from the machine or unpacked beside the system.
//!
//! Its settings are the strictest that are usual in practice: fewer server connections than clients, so that two
//! transactions of one client seldom get the same connection; no support for prepared statements; and no extra startup
//! parameter is ignored.

use std::{fs, str::FromStr as _};

use anyhow::{Context, Result, bail};
use sqlx::postgres::PgConnectOptions;

use super::{Directories, Installation, Recipe, Settings, postgres};
use crate::start::{
    apt::{self, Suite},
    cache::Cache,
    command_line::{CommandLine, find_program, version_of},
    probe::postgres as probe,
    progress::Progress,
    url::has_password,
};

/// The first version that supports prepared statements, and does so by default.
const PREPARED_STATEMENTS: (u32, u32) = (1, 21);
const CONFIGURATION: &str = "pgbouncer.ini";

pub(super) struct Pgbouncer;

impl Recipe for Pgbouncer {
    fn provision(&self, cache: &Cache, progress: &Progress) -> Result<Installation> {
        let account = postgres::account()?;
        let shared = cache.shared_for(account.as_ref());
        let server = match find_program("pgbouncer") {
            Some(program) => CommandLine::new(program),
            None => {
                let root = apt::unpack(&shared, "pgbouncer", Suite::Machine, progress)?;
                apt::with_libraries(CommandLine::new(root.join("usr/sbin/pgbouncer")), &root)
            }
        };
        let version = version_of(&server)?;
        Ok(Installation { server, base: shared.directory("roots"), version, account })
    }

    fn configure(
        &self,
        installation: &Installation,
        directories: &Directories,
        settings: &Settings,
        upstream: Option<&str>,
    ) -> Result<()> {
        let upstream = upstream.context("PgBouncer needs a PostgreSQL behind it")?;
        if has_password(upstream) {
            bail!("PostgreSQL asks for a password, which would have to be written to a file");
        }
        let text = configuration(upstream, settings.port, &installation.version)?;
        Ok(fs::write(directories.data.join(CONFIGURATION), text)?)
    }

    fn command_line(
        &self,
        installation: &Installation,
        directories: &Directories,
        _settings: &Settings,
    ) -> CommandLine {
        installation
            .server
            .clone()
            .arg(CONFIGURATION)
            .directory(&directories.data)
            .account(installation.account.clone())
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://ratchet@127.0.0.1:{port}/ratchet")
    }

    /// Checks with a statement: PgBouncer accepts clients even if no server is behind it.
    fn make_ready(&self, url: &str, _durable: bool) -> Result<()> {
        probe::version(url).map(drop)
    }

    /// Asks the console, which knows the version but which not every account may use.
    fn version(&self, url: &str) -> Result<String> {
        match probe::pgbouncer_version(url) {
            Ok(version) => Ok(version.trim_start_matches("PgBouncer ").to_owned()),
            Err(_) => Ok(format!("unknown version before PostgreSQL {}", probe::version(url)?)),
        }
    }

    /// An immediate stop: there is nothing to lose, and since 1.23 a `TERM` waits for all clients to disconnect.
    fn stop_signal(&self) -> &'static str {
        "KILL"
    }
}

fn configuration(upstream: &str, port: u16, version: &str) -> Result<String> {
    let upstream = PgConnectOptions::from_str(upstream)?;
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let user = upstream.get_username();
    let database = upstream.get_database().unwrap_or(user);
    let mut text = format!(
        "[databases]\n\
         ratchet = host={} port={} dbname={} user={}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         server_tls_sslmode = prefer\n\
         pool_mode = transaction\n\
         default_pool_size = 4\n\
         max_client_conn = 500\n",
        quoted(upstream.get_host()),
        upstream.get_port(),
        quoted(database),
        quoted(user),
    );
    if version_number(version).is_some_and(|number| number >= PREPARED_STATEMENTS) {
        text += "max_prepared_statements = 0\n";
    }
    Ok(text)
}

/// Reads `PgBouncer 1.18.0`.
fn version_number(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.rsplit(' ').next()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_the_server_behind() {
        let text = configuration("postgres://it's@db:5433/jobs", 6432, "PgBouncer 1.18.0").unwrap();
        assert!(text.contains("ratchet = host='db' port=5433 dbname='jobs' user='it''s'\n"), "{text}");
        assert!(text.contains("listen_port = 6432\n"), "{text}");
        assert!(text.contains("pool_mode = transaction\n"), "{text}");
    }

    #[test]
    fn prepared_statements_are_switched_off_where_they_are_supported() {
        let switches_off = |version| {
            let text = configuration("postgres://db/jobs", 1, version).unwrap();
            text.contains("max_prepared_statements = 0")
        };
        assert!(!switches_off("PgBouncer 1.18.0"));
        assert!(switches_off("PgBouncer 1.21.0"));
        assert!(switches_off("PgBouncer 2.0.1"));
    }
}
