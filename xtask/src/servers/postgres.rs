//! PostgreSQL, from the machine or unpacked from the distribution's package beside the system.
//!
//! Unpacked rather than installed: the package would start a server of its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{
    Installation, Place, Server, Settings,
    apt::{self, Origin},
    cache::Cache,
    probe::{Answer, ServerUrl, postgres as protocol},
    process::{Launch, User, find_program, is_root, version_of},
    screen::Screen,
};

pub(super) struct Postgres;

impl Server for Postgres {
    fn provision(&self, cache: &Cache, screen: &Screen) -> Result<Installation> {
        let user = account()?;
        let (tools, base) = match find() {
            Some(folder) => (Launch::new(folder.join("postgres")), folder),
            None => {
                let base = cache.base_for(user.as_ref());
                let root = apt::unpack(&base, "postgresql", Origin::Machine, screen)?;
                let folder = programs_below(&root.join("usr/lib/postgresql"), "")
                    .context("the package postgresql brought no server")?;
                (apt::with_libraries(Launch::new(folder.join("postgres")), &root), folder)
            }
        };
        let version = version_of(&tools)?;
        Ok(Installation { server: tools, base, version, user })
    }

    fn initialise(&self, programs: &Installation, place: &Place) -> Result<()> {
        programs
            .server
            .sibling("initdb")
            .args(["--username=ratchet", "--auth=trust", "--encoding=UTF8", "--locale=C"])
            .args(["--no-sync", "--no-instructions"])
            .path_arg("--pgdata", &place.data)
            .folder(&place.data)
            .user(programs.user.clone())
            .run("initdb", &place.side_log("initdb.log"))
    }

    fn launch(&self, programs: &Installation, place: &Place, settings: &Settings) -> Launch {
        let mut launch = programs
            .server
            .clone()
            .arg("-D")
            .arg(&place.data)
            .args(["-p", &settings.port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            // The path of a socket may be at most 107 bytes long: TCP only.
            .args(["-c", "unix_socket_directories="])
            .args(["-c", "max_connections=500"])
            .args(["-c", "shared_buffers=256MB"])
            .folder(&place.data)
            .user(programs.user.clone());
        if !settings.durable {
            launch = launch
                .args(["-c", "fsync=off"])
                .args(["-c", "synchronous_commit=off"])
                .args(["-c", "full_page_writes=off"])
                .args(["-c", "max_wal_size=4GB"]);
        }
        launch
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://ratchet@127.0.0.1:{port}/ratchet")
    }

    fn probe(&self, url: &ServerUrl) -> Result<Answer> {
        protocol::probe(url)
    }

    fn ensure_usable(&self, url: &ServerUrl, _durable: bool) -> Result<()> {
        match protocol::probe(url) {
            Err(err) if err.downcast_ref::<protocol::ServerError>().is_some_and(is_missing) => {
                protocol::execute(url, "postgres", "CREATE DATABASE ratchet")
            }
            other => other.map(drop),
        }
    }

    /// Fast shutdown: does not wait for clients to leave.
    fn stop_signal(&self) -> &'static str {
        "INT"
    }
}

/// The account to run as: it refuses to run as root. The distribution's package makes one for it.
pub(super) fn account() -> Result<Option<User>> {
    if !is_root() {
        return Ok(None);
    }
    User::named("postgres")
        .or_else(|| User::named("nobody"))
        .context("it does not run as root, and there is no other account for it")
        .map(Some)
}

fn is_missing(error: &protocol::ServerError) -> bool {
    error.code == protocol::NO_SUCH_DATABASE
}

/// The folder with `postgres` and `initdb`, of the newest version that is there.
fn find() -> Option<PathBuf> {
    const USUAL: [(&str, &str); 4] = [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql@"),
        ("/usr/local/opt", "postgresql@"),
    ];
    let usual = USUAL.iter().find_map(|(base, prefix)| programs_below(Path::new(base), prefix));
    usual.or_else(|| {
        // A link on the search path may lead away from the folder that `initdb` is in.
        let program = fs::canonicalize(find_program("postgres")?).ok()?;
        program.parent().filter(|folder| is_complete(folder)).map(Path::to_owned)
    })
}

/// The folder of programs below `base/<prefix><version>/bin`, of the newest version.
fn programs_below(base: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(base).ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version: u32 = name.strip_prefix(prefix)?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    entries.filter(|(_, folder)| is_complete(folder)).max().map(|(_, folder)| folder)
}

fn is_complete(folder: &Path) -> bool {
    folder.join("postgres").is_file() && folder.join("initdb").is_file()
}
