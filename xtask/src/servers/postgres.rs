//! PostgreSQL, from the machine or from the distribution's package.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::{
    Installation, Place, Server, Settings, apt,
    cache::Cache,
    probe::{Answer, ServerUrl, postgres as protocol},
    process::{Launch, User, find_program, is_root, version_of},
    screen::Screen,
};

pub(super) struct Postgres;

impl Server for Postgres {
    fn provision(&self, cache: &Cache, screen: &Screen) -> Result<Installation> {
        if let Some(found) = find() {
            return installation(found);
        }
        apt::install(cache, "postgresql", screen)?;
        installation(find().context("the package postgresql brought no server")?)
    }

    fn initialise(&self, programs: &Installation, place: &Place) -> Result<()> {
        Launch::new(programs.base.join("initdb"))
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

fn is_missing(error: &protocol::ServerError) -> bool {
    error.code == protocol::NO_SUCH_DATABASE
}

fn installation(folder: PathBuf) -> Result<Installation> {
    let server = Launch::new(folder.join("postgres"));
    let version = version_of(&server).context("postgres --version does not answer")?;
    // It refuses to run as root; the package made an account for it.
    let user = match is_root() {
        false => None,
        true => match User::named("postgres") {
            Some(user) => Some(user),
            None => bail!("PostgreSQL does not run as root, and there is no account `postgres`"),
        },
    };
    Ok(Installation { server, base: folder, version, user })
}

/// The folder with `postgres` and `initdb`, of the newest version that is there.
fn find() -> Option<PathBuf> {
    let mut folders = Vec::new();
    for (base, prefix, below) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql@", "bin"),
        ("/usr/local/opt", "postgresql@", "bin"),
    ] {
        folders.extend(versions_in(Path::new(base), prefix).into_iter().map(|f| f.join(below)));
    }
    // A link on the search path may lead away from the folder that `initdb` is in.
    let on_path = find_program("postgres").and_then(|p| fs::canonicalize(p).ok());
    folders.extend(on_path.and_then(|p| p.parent().map(Path::to_owned)));
    folders.into_iter().find(|f| f.join("postgres").is_file() && f.join("initdb").is_file())
}

fn versions_in(base: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(base)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_prefix(prefix)?.parse().ok()?, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}
