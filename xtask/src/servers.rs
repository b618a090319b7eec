//! `cargo xtask servers up|down|env`: the command line of `ratchet-servers`.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::{
    Args, Subcommand,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use ratchet_servers::start::{Wanted, down, print_env, up};
pub(crate) use ratchet_servers::{
    Server,
    start::{Origin, Running, during, faketime, live_servers},
};

/// The subcommands of `cargo xtask servers`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Start servers, downloading them if needed, and wait until they answer
    #[command(after_help = "Examples:\n  \
        cargo xtask servers up\n  \
        cargo xtask servers up postgres mongodb\n  \
        cargo xtask servers up --durable postgres     settings for benchmarks\n  \
        cargo xtask servers up mongodb --replica-set 3     three members, for failover\n  \
        RATCHET_TEST_MYSQL_URL=mysql://root@db/test cargo xtask servers up mysql     use your own")]
    Up {
        #[command(flatten)]
        names: Names,
        /// Keep the servers' durable defaults (for benchmarks); otherwise they are fast and lose data in a crash
        #[arg(long)]
        durable: bool,
        /// Number of members of MongoDB's replica set (default: that of the running set, or 1)
        #[arg(long, value_name = "MEMBERS", value_parser = clap::value_parser!(u8).range(1..=7))]
        replica_set: Option<u8>,
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
    /// The servers (default: all five)
    #[arg(value_parser = server_parser(), value_name = "NAME")]
    names: Vec<Server>,
}

impl Names {
    fn chosen(&self) -> Vec<Server> {
        let mut names = if self.names.is_empty() { Server::ALL.to_vec() } else { self.names.clone() };
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn server_parser() -> impl TypedValueParser<Value = Server> {
    let values = Server::ALL.map(|server| PossibleValue::new(server.name()).help(server.title()));
    PossibleValuesParser::new(values).try_map(|name| name.parse())
}

/// Runs a `servers` command.
pub(crate) fn run(command: &ServersCommand, workspace: &Path) -> Result<()> {
    match command {
        ServersCommand::Up { names, durable, replica_set } => {
            let names = names.chosen();
            ensure!(
                replica_set.is_none() || names.contains(&Server::Mongodb),
                "--replica-set is for mongodb, which is not to be started"
            );
            let wanted = Wanted { durable: *durable, replica_set: replica_set.map(usize::from) };
            up(workspace, &names, wanted).map(drop)
        }
        ServersCommand::Down { names, wipe } => down(workspace, &names.chosen(), *wipe),
        ServersCommand::Env { names } => print_env(workspace, &names.chosen()),
    }
}
