//! The differences between the servers; everything else is the same for all of them.

mod mariadb;
pub(crate) mod mongodb;
mod mysql;
mod pgbouncer;
mod postgres;

use std::path::PathBuf;

use anyhow::Result;

use super::{account::Account, cache::Cache, command_line::CommandLine, progress::Progress};
use crate::Server;

/// The installation, start and probe of one kind of server.
pub(crate) trait Recipe: Sync {
    /// Finds the programs on this machine or downloads them into the cache.
    fn provision(&self, cache: &Cache, progress: &Progress) -> Result<Installation>;

    /// Fills an empty data directory.
    fn initialise(&self, _installation: &Installation, _directories: &Directories) -> Result<()> {
        Ok(())
    }

    /// Writes the configuration file, if there is one; `upstream` is the URL of the server behind this one.
    fn configure(
        &self,
        _installation: &Installation,
        _directories: &Directories,
        _settings: &Settings,
        _upstream: Option<&str>,
    ) -> Result<()> {
        Ok(())
    }

    /// The command line of the server.
    fn command_line(
        &self,
        installation: &Installation,
        directories: &Directories,
        settings: &Settings,
    ) -> CommandLine;

    /// The URL for tests.
    fn url(&self, port: u16) -> String;

    /// Makes a server of ours ready for tests: its database, its replica set. Must be idempotent, and quick when there
    /// is nothing to do.
    fn make_ready(&self, url: &str, durable: bool) -> Result<()>;

    /// Logs in and asks for the version.
    fn version(&self, url: &str) -> Result<String>;

    /// The signal for a shutdown that does not wait for clients.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }
}

/// The recipe of a server.
pub(crate) fn recipe(server: Server) -> &'static dyn Recipe {
    match server {
        Server::Postgres => &postgres::Postgres,
        Server::Mysql => &mysql::Mysql,
        Server::Mariadb => &mariadb::Mariadb,
        Server::Mongodb => &mongodb::Mongodb,
        Server::Pgbouncer => &pgbouncer::Pgbouncer,
    }
}

/// The server that a pooler is in front of.
pub(crate) fn upstream(server: Server) -> Option<Server> {
    match server {
        Server::Pgbouncer => Some(Server::Postgres),
        Server::Postgres | Server::Mysql | Server::Mariadb | Server::Mongodb => None,
    }
}

/// The programs of a server.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    /// The server program, with the arguments and variables that it needs to find its own files.
    pub(crate) server: CommandLine,
    /// The directory with the other files of the installation.
    pub(crate) base: PathBuf,
    /// The version as the program prints it; data made by another version is not used.
    pub(crate) version: String,
    /// The account that the server runs as, if not ours.
    pub(crate) account: Option<Account>,
}

/// The directories and files of one server of this checkout.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    pub(crate) data: PathBuf,
    /// The directory for temporary files. Never the machine's: MariaDB removes files of others there.
    pub(crate) temporary: PathBuf,
    pub(crate) log: PathBuf,
}

impl Directories {
    /// A log of a program other than the server itself.
    pub(crate) fn side_log(&self, name: &str) -> PathBuf {
        self.log.with_file_name(name)
    }
}

/// Settings of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) port: u16,
    pub(crate) durable: bool,
}
