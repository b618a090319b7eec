//! MySQL, from the machine or unpacked from Debian's `sid` beside the system.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Directories, Installation, Recipe, Settings};
use crate::start::{
    account::is_root,
    apt::{self, Suite},
    cache::Cache,
    command_line::{CommandLine, find_program, version_of},
    probe::mysql as probe,
    progress::Progress,
};

pub(super) struct Mysql;

impl Recipe for Mysql {
    fn provision(&self, cache: &Cache, progress: &Progress) -> Result<Installation> {
        if let Some(found) = on_this_machine() {
            return Ok(found);
        }
        let root = apt::unpack(&cache.shared(), "mysql-server-core", Suite::Sid, progress)?;
        let server = unpacked(&root)?;
        let version =
            version_of(&server).with_context(|| format!("remove {} and try again", root.display()))?;
        Ok(Installation { server, base: root.join("usr"), version, account: None })
    }

    fn initialise(&self, installation: &Installation, directories: &Directories) -> Result<()> {
        with_account(installation.server.clone())
            .arg("--initialize-insecure")
            .path_arg("--datadir", &directories.data)
            .path_arg("--tmpdir", &directories.temporary)
            .args(NOT_DURABLE)
            .run("mysqld --initialize-insecure", &directories.side_log("initialize.log"))
    }

    fn command_line(
        &self,
        installation: &Installation,
        directories: &Directories,
        settings: &Settings,
    ) -> CommandLine {
        common(installation.server.clone().arg("--mysqlx=OFF"), directories, settings)
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn make_ready(&self, url: &str, _durable: bool) -> Result<()> {
        probe::ensure_database(url)
    }

    fn version(&self, url: &str) -> Result<String> {
        probe::version(url)
    }
}

/// Settings of both MySQL and MariaDB that trade safety for speed.
const NOT_DURABLE: [&str; 4] =
    ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--sync-binlog=0", "--skip-log-bin"];

/// The part of the command line that MySQL and MariaDB share.
pub(super) fn common(program: CommandLine, directories: &Directories, settings: &Settings) -> CommandLine {
    let mut command = with_account(program)
        .path_arg("--datadir", &directories.data)
        .path_arg("--tmpdir", &directories.temporary)
        .arg(format!("--port={}", settings.port))
        .arg("--bind-address=127.0.0.1")
        // A relative path is below the data directory: the path of a socket must be short.
        .args(["--socket=server.sock", "--pid-file=server.pid"])
        .args(["--max-connections=500", "--innodb-buffer-pool-size=256M"]);
    if !settings.durable {
        command = command.args(NOT_DURABLE);
    }
    command
}

/// Adds the account to run as: both servers refuse to run as root unless an option asks for it.
pub(super) fn with_account(program: CommandLine) -> CommandLine {
    if is_root() { program.arg("--user=root") } else { program }
}

pub(super) fn url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/ratchet")
}

/// MySQL on this machine. MariaDB installs a program of the same name.
fn on_this_machine() -> Option<Installation> {
    let program = find_program("mysqld")?;
    let server = CommandLine::new(&program).arg("--no-defaults");
    let version = version_of(&server).ok()?;
    let base = program.parent()?.parent()?.to_owned();
    (!version.contains("MariaDB")).then_some(Installation { server, base, version, account: None })
}

/// Runs through the unpacked loader, with the unpacked libraries and none of the system's.
fn unpacked(root: &Path) -> Result<CommandLine> {
    let (loader, libraries) = match std::env::consts::ARCH {
        "aarch64" => ("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
        _ => ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
    };
    let loader = [root.join(loader), root.join(libraries).join(loader.rsplit('/').next().unwrap_or(loader))]
        .into_iter()
        .find(|path| path.exists())
        .context("the unpacked packages contain no loader")?;
    Ok(CommandLine::new(loader)
        .arg("--library-path")
        .arg(root.join(libraries))
        .arg(root.join("usr/sbin/mysqld"))
        .arg("--no-defaults")
        .path_arg("--basedir", &root.join("usr"))
        .path_arg("--lc-messages-dir", &root.join("usr/share/mysql"))
        .path_arg("--plugin-dir", &root.join("usr/lib/mysql/plugin"))
        .arg("--secure-file-priv=NULL"))
}
