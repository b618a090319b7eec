//! MariaDB, from the machine or unpacked from the distribution's package beside the system.
//!
//! Unpacked rather than installed: the package would start a service of its own, make accounts and
//! write to `/etc`, and it would stand in the way of a MySQL that comes later.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{
    Installation, Place, Server, Settings,
    apt::{self, Origin},
    cache::Cache,
    mysql,
    probe::{Answer, ServerUrl, mysql as protocol},
    process::{Launch, find_program, version_of},
    screen::Screen,
};

pub(super) struct Mariadb;

impl Server for Mariadb {
    fn provision(&self, cache: &Cache, screen: &Screen) -> Result<Installation> {
        if let Some(program) = find_program("mariadbd") {
            let program = fs::canonicalize(program)?;
            let base = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
            return installation(Launch::new(&program), base);
        }
        let root = apt::unpack(&cache.base_for(None), "mariadb-server-core", Origin::Machine, screen)?;
        let program = apt::with_libraries(Launch::new(root.join("usr/sbin/mariadbd")), &root);
        installation(program, &root.join("usr"))
            .with_context(|| format!("remove {} and try again", root.display()))
    }

    /// What `mariadb-install-db` does, without the script: it wants programs of other packages.
    fn initialise(&self, programs: &Installation, place: &Place) -> Result<()> {
        let share = scripts(&programs.base)?;
        let mut sql =
            String::from("create database if not exists mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n");
        for name in SYSTEM_TABLES {
            sql += &fs::read_to_string(share.join(name)).with_context(|| name.to_owned())?;
            sql.push('\n');
        }
        let script = place.side_log("bootstrap.sql");
        fs::write(&script, sql)?;
        mysql::with_account(programs.server.clone())
            .arg("--bootstrap")
            .path_arg("--datadir", &place.data)
            .path_arg("--tmpdir", &place.temporary)
            .args(["--log-warnings=0", "--enforce-storage-engine=", "--max-allowed-packet=8M"])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF"])
            .input(&script)
            .run("mariadbd --bootstrap", &place.side_log("bootstrap.log"))
    }

    fn launch(&self, programs: &Installation, place: &Place, settings: &Settings) -> Launch {
        mysql::common(programs.server.clone(), place, settings)
    }

    fn url(&self, port: u16) -> String {
        mysql::url(port)
    }

    fn probe(&self, url: &ServerUrl) -> Result<Answer> {
        protocol::probe(url)
    }

    fn ensure_usable(&self, url: &ServerUrl, _durable: bool) -> Result<()> {
        mysql::ensure_database(url)
    }
}

/// The scripts that make the system tables, in order; the help texts are left out.
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
        .find(|folder| folder.join(SYSTEM_TABLES[0]).is_file())
        .with_context(|| format!("no {} below {}", SYSTEM_TABLES[0], base.display()))
}

fn installation(program: Launch, base: &Path) -> Result<Installation> {
    let share = scripts(base)?;
    let mut server =
        program.arg("--no-defaults").path_arg("--basedir", base).path_arg("--lc-messages-dir", &share);
    let plugins = base.join("lib/mysql/plugin");
    if plugins.is_dir() {
        server = server.path_arg("--plugin-dir", &plugins);
    }
    let version = version_of(&server)?;
    Ok(Installation { server, base: base.to_owned(), version, user: None })
}
