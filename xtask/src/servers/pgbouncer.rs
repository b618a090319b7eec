//! PgBouncer in transaction mode before our PostgreSQL, from the machine or unpacked beside the system.
//!
//! It is set up as unkindly as it may be in practice: fewer server connections than clients, so that two
//! transactions of one client seldom meet the same one; no memory of prepared statements; and no extra
//! startup parameter let through.

use std::fs;

use anyhow::{Context, Result, bail};

use super::{
    Installation, Place, Server, Settings,
    apt::{self, Origin},
    cache::Cache,
    postgres,
    probe::{Answer, ServerUrl, postgres as protocol},
    process::{Launch, find_program, version_of},
    screen::Screen,
};

/// The first version that can remember prepared statements, and does so unless told not to.
const REMEMBERS_STATEMENTS: (u32, u32) = (1, 21);
const CONFIGURATION: &str = "pgbouncer.ini";

pub(super) struct Pgbouncer;

impl Server for Pgbouncer {
    fn provision(&self, cache: &Cache, screen: &Screen) -> Result<Installation> {
        let user = postgres::account()?;
        let base = cache.base_for(user.as_ref());
        let server = match find_program("pgbouncer") {
            Some(program) => Launch::new(program),
            None => {
                let root = apt::unpack(&base, "pgbouncer", Origin::Machine, screen)?;
                apt::with_libraries(Launch::new(root.join("usr/sbin/pgbouncer")), &root)
            }
        };
        let version = version_of(&server)?;
        Ok(Installation { server, base: base.folder("roots"), version, user })
    }

    /// It keeps nothing.
    fn initialise(&self, _programs: &Installation, _place: &Place) -> Result<()> {
        Ok(())
    }

    fn configure(
        &self,
        programs: &Installation,
        place: &Place,
        settings: &Settings,
        upstream: Option<&ServerUrl>,
    ) -> Result<()> {
        let upstream = upstream.context("PgBouncer needs a PostgreSQL behind it")?;
        if upstream.has_password {
            bail!("PostgreSQL asks for a password, which would have to lie in a file");
        }
        let text = configuration(upstream, settings.port, &programs.version);
        Ok(fs::write(place.data.join(CONFIGURATION), text)?)
    }

    fn launch(&self, programs: &Installation, place: &Place, _settings: &Settings) -> Launch {
        programs.server.clone().arg(CONFIGURATION).folder(&place.data).user(programs.user.clone())
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://ratchet@127.0.0.1:{port}/ratchet")
    }

    /// Its own version is what its console tells; not everybody may use that.
    fn probe(&self, url: &ServerUrl) -> Result<Answer> {
        let console = ServerUrl { database: Some("pgbouncer".to_owned()), ..url.clone() };
        match protocol::probe(&console) {
            Ok(answer) => Ok(Answer { version: answer.version.replace("/bouncer", ""), ..answer }),
            Err(_) => {
                let behind = protocol::probe(url)?;
                let note = format!("PostgreSQL {} behind it", behind.version);
                Ok(Answer { version: "unknown".to_owned(), note: Some(note) })
            }
        }
    }

    /// It greets clients also while nothing is behind it: only a statement shows that it works.
    fn ensure_usable(&self, url: &ServerUrl, _durable: bool) -> Result<()> {
        protocol::execute(url, url.database.as_deref().unwrap_or("ratchet"), "SELECT 1")
    }

    /// There is nothing to lose, and since 1.23 a `TERM` waits for all clients to leave.
    fn stop_signal(&self) -> &'static str {
        "KILL"
    }
}

fn configuration(upstream: &ServerUrl, port: u16, version: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let user = upstream.user.as_deref().unwrap_or("postgres");
    let database = upstream.database.as_deref().unwrap_or(user);
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
        quoted(&upstream.host),
        upstream.port,
        quoted(database),
        quoted(user),
    );
    if version_number(version).is_some_and(|number| number >= REMEMBERS_STATEMENTS) {
        text += "max_prepared_statements = 0\n";
    }
    text
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
    fn the_configuration_leads_to_the_server_behind() {
        let upstream = ServerUrl::parse("postgres://it's@db:5433/jobs").unwrap();
        let text = configuration(&upstream, 6432, "PgBouncer 1.18.0");
        assert!(text.contains("ratchet = host='db' port=5433 dbname='jobs' user='it''s'\n"), "{text}");
        assert!(text.contains("listen_port = 6432\n"), "{text}");
        assert!(text.contains("pool_mode = transaction\n"), "{text}");
    }

    #[test]
    fn only_a_version_that_remembers_statements_is_told_not_to() {
        let upstream = ServerUrl::parse("postgres://db/jobs").unwrap();
        let tells = |version| configuration(&upstream, 1, version).contains("max_prepared_statements = 0");
        assert!(!tells("PgBouncer 1.18.0"));
        assert!(tells("PgBouncer 1.21.0"));
        assert!(tells("PgBouncer 2.0.1"));
    }
}
