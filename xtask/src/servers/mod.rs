//! Real database servers for tests and benchmarks: `cargo xtask servers up|down|env`.
//!
//! Each server is had in the first way that works: a URL that the user gives, programs that are on
//! the machine, or a download into a cache of our own. Servers run on free ports with private data
//! folders, outlive the command that started them, and belong to one checkout.

mod apt;
mod cache;
mod lifecycle;
mod mariadb;
mod mongodb;
mod mysql;
mod pgbouncer;
mod postgres;
mod probe;
mod process;
mod screen;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

pub(crate) use self::lifecycle::{Running, RunningSince, during};
use self::{
    apt::Origin,
    cache::Cache,
    lifecycle::{down, up},
    probe::{Answer, ServerUrl},
    process::{Launch, User},
    screen::Screen,
};

/// The servers that Ratchet has stores for, and what stands before them in practice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Name {
    /// PostgreSQL
    Postgres,
    /// MySQL
    Mysql,
    /// MariaDB
    Mariadb,
    /// MongoDB, as a replica set of one
    Mongodb,
    /// PgBouncer in transaction mode, before PostgreSQL
    Pgbouncer,
}

impl Name {
    pub(crate) const ALL: [Self; 5] =
        [Self::Postgres, Self::Mysql, Self::Mariadb, Self::Mongodb, Self::Pgbouncer];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
            Self::Mongodb => "mongodb",
            Self::Pgbouncer => "pgbouncer",
        }
    }

    /// The variable that tests read this server's URL from.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "RATCHET_TEST_POSTGRES_URL",
            Self::Mysql => "RATCHET_TEST_MYSQL_URL",
            Self::Mariadb => "RATCHET_TEST_MARIADB_URL",
            Self::Mongodb => "RATCHET_TEST_MONGODB_URL",
            Self::Pgbouncer => "RATCHET_TEST_PGBOUNCER_URL",
        }
    }

    fn server(self) -> &'static dyn Server {
        match self {
            Self::Postgres => &postgres::Postgres,
            Self::Mysql => &mysql::Mysql,
            Self::Mariadb => &mariadb::Mariadb,
            Self::Mongodb => &mongodb::Mongodb,
            Self::Pgbouncer => &pgbouncer::Pgbouncer,
        }
    }

    /// The server that this one only passes work on to.
    fn upstream(self) -> Option<Self> {
        match self {
            Self::Pgbouncer => Some(Self::Postgres),
            Self::Postgres | Self::Mysql | Self::Mariadb | Self::Mongodb => None,
        }
    }
}

/// What differs between the servers; everything else is in [`lifecycle`].
trait Server: Sync {
    /// Finds the programs on this machine or brings them into the cache.
    fn provision(&self, cache: &Cache, screen: &Screen) -> Result<Installation>;

    /// Fills an empty data folder.
    fn initialise(&self, programs: &Installation, place: &Place) -> Result<()>;

    /// Writes what the server reads at its start; `upstream` is the server that it passes work on to.
    fn configure(
        &self,
        _programs: &Installation,
        _place: &Place,
        _settings: &Settings,
        _upstream: Option<&ServerUrl>,
    ) -> Result<()> {
        Ok(())
    }

    /// The command line of the server.
    fn launch(&self, programs: &Installation, place: &Place, settings: &Settings) -> Launch;

    /// The URL that tests get.
    fn url(&self, port: u16) -> String;

    /// Asks a server what it is.
    fn probe(&self, url: &ServerUrl) -> Result<Answer>;

    /// Makes a server that answers ready for tests: its database, its replica set. Must bear repetition,
    /// and is quick when there is nothing to do.
    fn ensure_usable(&self, url: &ServerUrl, durable: bool) -> Result<()>;

    /// The signal for stopping at once, in good order.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }
}

/// The programs of a server.
#[derive(Debug, Clone)]
struct Installation {
    /// The server program, with what it needs to be found and loaded.
    server: Launch,
    /// The folder that the other parts lie in.
    base: PathBuf,
    /// In the program's own words; data made by another version is not used.
    version: String,
    /// The account it runs as, if not ours.
    user: Option<User>,
}

/// Where one server of this checkout keeps its things.
#[derive(Debug, Clone)]
struct Place {
    data: PathBuf,
    /// For temporary files. Never the machine's: MariaDB removes what it finds there of others.
    temporary: PathBuf,
    log: PathBuf,
}

impl Place {
    /// A log of something other than the server itself.
    fn side_log(&self, name: &str) -> PathBuf {
        self.log.with_file_name(name)
    }
}

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    port: u16,
    durable: bool,
}

/// `cargo xtask servers …`
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Start servers, fetching them first if need be, and wait until they answer
    #[command(after_help = "Examples:\n  \
        cargo xtask servers up\n  \
        cargo xtask servers up postgres mongodb\n  \
        cargo xtask servers up --durable postgres     settings for benchmarks\n  \
        RATCHET_TEST_MYSQL_URL=mysql://root@db/test cargo xtask servers up mysql     use your own")]
    Up {
        #[command(flatten)]
        names: Names,
        /// Keep the servers' durable defaults (for benchmarks); without it they run fast and lose
        /// data when the machine fails
        #[arg(long)]
        durable: bool,
    },
    /// Stop the servers that this checkout started
    #[command(after_help = "Examples:\n  \
        cargo xtask servers down\n  \
        cargo xtask servers down mysql\n  \
        cargo xtask servers down --wipe     also remove their data")]
    Down {
        #[command(flatten)]
        names: Names,
        /// Remove the data folders as well
        #[arg(long)]
        wipe: bool,
    },
    /// Print the variables that tests read, for `eval`
    #[command(after_help = "Examples:\n  \
        eval \"$(cargo xtask servers env)\" && cargo test -p ratchet-store-postgres\n  \
        cargo xtask servers env mongodb")]
    Env {
        #[command(flatten)]
        names: Names,
    },
}

/// Names of servers on the command line.
#[derive(Debug, Args)]
pub(crate) struct Names {
    /// Which servers; all five if none is named
    #[arg(value_enum, value_name = "NAME")]
    names: Vec<Name>,
}

impl Names {
    fn chosen(&self) -> Vec<Name> {
        let mut names = if self.names.is_empty() { Name::ALL.to_vec() } else { self.names.clone() };
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Fetches the library that gives a process another clock, unless it is there already.
pub(crate) fn faketime(workspace: &Path) -> Result<PathBuf> {
    let (cache, screen) = (Cache::open(workspace)?, Screen::new("libfaketime"));
    let root = apt::unpack(&cache.base_for(None), "libfaketime", Origin::Machine, &screen)?;
    let kinds = std::fs::read_dir(root.join("usr/lib"))?.filter_map(Result::ok);
    let mut libraries = kinds.map(|kind| kind.path().join("faketime/libfaketime.so.1"));
    libraries.find(|library| library.is_file()).context("the package has no libfaketime.so.1")
}

/// Carries a `servers` command out.
pub(crate) fn run(command: &ServersCommand, workspace: &Path) -> Result<()> {
    match command {
        ServersCommand::Up { names, durable } => up(workspace, &names.chosen(), *durable).map(drop),
        ServersCommand::Down { names, wipe } => down(workspace, &names.chosen(), *wipe),
        ServersCommand::Env { names } => lifecycle::env(workspace, &names.chosen()),
    }
}
