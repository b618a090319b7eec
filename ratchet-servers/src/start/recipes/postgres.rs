//! PostgreSQL, from the machine or unpacked from the distribution's package beside the system.
//!
//! Unpacked rather than installed: the package would start a server of its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{Directories, Installation, Recipe, Settings};
use crate::start::{
    account::{Account, is_root},
    apt::{self, Suite},
    cache::Cache,
    command_line::{CommandLine, find_program, version_of},
    probe::postgres as probe,
    progress::Progress,
};

pub(super) struct Postgres;

impl Recipe for Postgres {
    fn provision(&self, cache: &Cache, progress: &Progress) -> Result<Installation> {
        let account = account()?;
        let (server, base) = match find() {
            Some(directory) => (CommandLine::new(directory.join("postgres")), directory),
            None => {
                let shared = cache.shared_for(account.as_ref());
                let root = apt::unpack(&shared, "postgresql", Suite::Machine, progress)?;
                let directory = programs_below(&root.join("usr/lib/postgresql"), "")
                    .context("the package postgresql brought no server")?;
                (apt::with_libraries(CommandLine::new(directory.join("postgres")), &root), directory)
            }
        };
        let version = version_of(&server)?;
        Ok(Installation { server, base, version, account })
    }

    fn initialise(&self, installation: &Installation, directories: &Directories) -> Result<()> {
        installation
            .server
            .sibling("initdb")
            .args(["--username=ratchet", "--auth=trust", "--encoding=UTF8", "--locale=C"])
            .args(["--no-sync", "--no-instructions"])
            .path_arg("--pgdata", &directories.data)
            .directory(&directories.data)
            .account(installation.account.clone())
            .run("initdb", &directories.side_log("initdb.log"))
    }

    fn command_line(
        &self,
        installation: &Installation,
        directories: &Directories,
        settings: &Settings,
    ) -> CommandLine {
        let mut command = installation
            .server
            .clone()
            .arg("-D")
            .arg(&directories.data)
            .args(["-p", &settings.port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            // TCP only: the path of a socket may be at most 107 bytes long.
            .args(["-c", "unix_socket_directories="])
            .args(["-c", "max_connections=500"])
            .args(["-c", "shared_buffers=256MB"])
            .directory(&directories.data)
            .account(installation.account.clone());
        if !settings.durable {
            command = command
                .args(["-c", "fsync=off"])
                .args(["-c", "synchronous_commit=off"])
                .args(["-c", "full_page_writes=off"])
                .args(["-c", "max_wal_size=4GB"]);
        }
        command
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://ratchet@127.0.0.1:{port}/ratchet")
    }

    fn make_ready(&self, url: &str, _durable: bool) -> Result<()> {
        probe::ensure_database(url)
    }

    fn version(&self, url: &str) -> Result<String> {
        probe::version(url)
    }

    /// Fast shutdown: does not wait for clients to disconnect.
    fn stop_signal(&self) -> &'static str {
        "INT"
    }
}

/// The account to run as: PostgreSQL refuses to run as root. The distribution's package makes one for it.
pub(super) fn account() -> Result<Option<Account>> {
    if !is_root() {
        return Ok(None);
    }
    Account::named("postgres")
        .or_else(|| Account::named("nobody"))
        .context("it refuses to run as root, and there is no account `postgres` or `nobody`")
        .map(Some)
}

/// The directory with `postgres` and `initdb`, of the newest version.
fn find() -> Option<PathBuf> {
    const USUAL: [(&str, &str); 4] = [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql@"),
        ("/usr/local/opt", "postgresql@"),
    ];
    let usual = USUAL.iter().find_map(|(base, prefix)| programs_below(Path::new(base), prefix));
    usual.or_else(|| {
        // A link in `PATH` may point away from the directory with `initdb`.
        let program = fs::canonicalize(find_program("postgres")?).ok()?;
        program.parent().filter(|directory| is_complete(directory)).map(Path::to_owned)
    })
}

/// The newest version among the directories `base/<prefix><version>/bin`.
fn programs_below(base: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(base).ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version: u32 = name.strip_prefix(prefix)?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    entries.filter(|(_, directory)| is_complete(directory)).max().map(|(_, directory)| directory)
}

fn is_complete(directory: &Path) -> bool {
    directory.join("postgres").is_file() && directory.join("initdb").is_file()
}
