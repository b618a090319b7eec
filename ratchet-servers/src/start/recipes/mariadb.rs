//! MariaDB, from the machine or unpacked from the distribution's package beside the system.
//!
//! Unpacked rather than installed: the package would start a service of its own, make accounts, write to `/etc`, and
//! conflict with a MySQL that is installed later.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{Directories, Installation, Recipe, Settings, mysql};
use crate::start::{
    apt::{self, Suite},
    cache::Cache,
    command_line::{CommandLine, find_program, version_of},
    probe::mysql as probe,
    progress::Progress,
};

pub(super) struct Mariadb;

impl Recipe for Mariadb {
    fn provision(&self, cache: &Cache, progress: &Progress) -> Result<Installation> {
        if let Some(program) = find_program("mariadbd") {
            let program = fs::canonicalize(program)?;
            let base = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
            return installation(CommandLine::new(&program), base);
        }
        let root = apt::unpack(&cache.shared(), "mariadb-server-core", Suite::Machine, progress)?;
        let program = apt::with_libraries(CommandLine::new(root.join("usr/sbin/mariadbd")), &root);
        installation(program, &root.join("usr"))
            .with_context(|| format!("remove {} and try again", root.display()))
    }

    /// Does the work of `mariadb-install-db` without the script, which needs programs of other packages.
    fn initialise(&self, installation: &Installation, directories: &Directories) -> Result<()> {
        let share = scripts(&installation.base)?;
        let mut sql =
            String::from("create database if not exists mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n");
        for name in SYSTEM_TABLES {
            sql += &fs::read_to_string(share.join(name)).with_context(|| name.to_owned())?;
            sql.push('\n');
        }
        let script = directories.side_log("bootstrap.sql");
        fs::write(&script, sql)?;
        mysql::with_account(installation.server.clone())
            .arg("--bootstrap")
            .path_arg("--datadir", &directories.data)
            .path_arg("--tmpdir", &directories.temporary)
            .args(["--log-warnings=0", "--enforce-storage-engine=", "--max-allowed-packet=8M"])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF"])
            .input(&script)
            .run("mariadbd --bootstrap", &directories.side_log("bootstrap.log"))
    }

    fn command_line(
        &self,
        installation: &Installation,
        directories: &Directories,
        settings: &Settings,
    ) -> CommandLine {
        mysql::common(installation.server.clone(), directories, settings)
    }

    fn url(&self, port: u16) -> String {
        mysql::url(port)
    }

    fn make_ready(&self, url: &str, _durable: bool) -> Result<()> {
        probe::ensure_database(url)
    }

    fn version(&self, url: &str) -> Result<String> {
        probe::version(url)
    }
}

/// The scripts that create the system tables, in order; the help texts are left out.
const SYSTEM_TABLES: [&str; 5] = [
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
    "mysql_sys_schema.sql",
];

fn scripts(base: &Path) -> Result<PathBuf> {
    ["share/mysql", "share/mariadb", "share"]
        .iter()
        .map(|below| base.join(below))
        .find(|directory| directory.join(SYSTEM_TABLES[0]).is_file())
        .with_context(|| format!("no {} below {}", SYSTEM_TABLES[0], base.display()))
}

fn installation(program: CommandLine, base: &Path) -> Result<Installation> {
    let share = scripts(base)?;
    let mut server =
        program.arg("--no-defaults").path_arg("--basedir", base).path_arg("--lc-messages-dir", &share);
    let plugins = base.join("lib/mysql/plugin");
    if plugins.is_dir() {
        server = server.path_arg("--plugin-dir", &plugins);
    }
    let version = version_of(&server)?;
    Ok(Installation { server, base: base.to_owned(), version, account: None })
}
