//! MySQL, from the machine or unpacked from Debian's `sid` beside the system.

use std::path::Path;

use anyhow::{Context, Result};

use super::{
    Installation, Place, Server, Settings,
    apt::{self, Origin},
    cache::Cache,
    probe::{Answer, ServerUrl, mysql as protocol},
    process::{Launch, find_program, is_root, version_of},
    screen::Screen,
};

pub(super) struct Mysql;

impl Server for Mysql {
    fn provision(&self, cache: &Cache, screen: &Screen) -> Result<Installation> {
        if let Some(found) = on_this_machine() {
            return Ok(found);
        }
        let root = apt::unpack(&cache.base_for(None), "mysql-server-core", Origin::Sid, screen)?;
        let server = unpacked(&root)?;
        let version =
            version_of(&server).with_context(|| format!("remove {} and try again", root.display()))?;
        Ok(Installation { server, base: root.join("usr"), version, user: None })
    }

    fn initialise(&self, programs: &Installation, place: &Place) -> Result<()> {
        with_account(programs.server.clone())
            .arg("--initialize-insecure")
            .path_arg("--datadir", &place.data)
            .path_arg("--tmpdir", &place.temporary)
            .args(NOT_DURABLE)
            .run("mysqld --initialize-insecure", &place.side_log("initialize.log"))
    }

    fn launch(&self, programs: &Installation, place: &Place, settings: &Settings) -> Launch {
        let launch = programs.server.clone().args(["--mysqlx=OFF"]);
        common(launch, place, settings)
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn probe(&self, url: &ServerUrl) -> Result<Answer> {
        protocol::probe(url)
    }

    fn ensure_usable(&self, url: &ServerUrl, _durable: bool) -> Result<()> {
        ensure_database(url)
    }
}

/// Settings of both MySQL and MariaDB that trade safety for speed.
const NOT_DURABLE: [&str; 4] =
    ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--sync-binlog=0", "--skip-log-bin"];

/// The part of the command line that MySQL and MariaDB share.
pub(super) fn common(launch: Launch, place: &Place, settings: &Settings) -> Launch {
    let mut launch = with_account(launch)
        .path_arg("--datadir", &place.data)
        .path_arg("--tmpdir", &place.temporary)
        .arg(format!("--port={}", settings.port))
        .arg("--bind-address=127.0.0.1")
        // A relative path is below the data folder: a socket's path must stay short.
        .args(["--socket=server.sock", "--pid-file=server.pid"])
        .args(["--max-connections=500", "--innodb-buffer-pool-size=256M"]);
    if !settings.durable {
        launch = launch.args(NOT_DURABLE);
    }
    launch
}

/// Both refuse to run as root by accident: one has to say it.
pub(super) fn with_account(launch: Launch) -> Launch {
    if is_root() { launch.arg("--user=root") } else { launch }
}

pub(super) fn url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/ratchet")
}

pub(super) fn ensure_database(url: &ServerUrl) -> Result<()> {
    match protocol::probe(url) {
        Err(err) if err.downcast_ref::<protocol::ServerError>().is_some_and(is_missing) => {
            protocol::execute(url, "CREATE DATABASE ratchet CHARACTER SET utf8mb4")
        }
        other => other.map(drop),
    }
}

fn is_missing(error: &protocol::ServerError) -> bool {
    error.code == protocol::NO_SUCH_DATABASE
}

/// `mysqld` is MariaDB's name too.
fn on_this_machine() -> Option<Installation> {
    let program = find_program("mysqld")?;
    let server = Launch::new(&program).arg("--no-defaults");
    let version = version_of(&server).ok()?;
    let base = program.parent()?.parent()?.to_owned();
    (!version.contains("MariaDB")).then_some(Installation { server, base, version, user: None })
}

/// Runs through the unpacked loader, with the unpacked libraries and nothing of the system's.
fn unpacked(root: &Path) -> Result<Launch> {
    let (loader, libraries) = match std::env::consts::ARCH {
        "aarch64" => ("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
        _ => ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
    };
    let loader = [root.join(loader), root.join(libraries).join(loader.rsplit('/').next().unwrap_or(loader))]
        .into_iter()
        .find(|path| path.exists())
        .context("the unpacked packages hold no loader")?;
    Ok(Launch::new(loader)
        .arg("--library-path")
        .arg(root.join(libraries))
        .arg(root.join("usr/sbin/mysqld"))
        .arg("--no-defaults")
        .path_arg("--basedir", &root.join("usr"))
        .path_arg("--lc-messages-dir", &root.join("usr/share/mysql"))
        .path_arg("--plugin-dir", &root.join("usr/lib/mysql/plugin"))
        .arg("--secure-file-priv=NULL"))
}
