//! `cargo xtask test`: every test of the workspace, against real servers, with a count for each store.
//!
//! Programs that keep the cores busy run as many at once as there are cores; those that mostly wait run beside them,
//! one after the other.
//!
//! A few failed tests are run once more, alone: those that pass then are listed as unsteady, with their output, and do
//! not fail the run.

mod durations;
mod program;
mod space;
mod tally;

use std::{path::Path, process::Stdio, sync::mpsc, thread, time::Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::{
    program::{Ended, Program, Setting},
    tally::Tally,
};
use crate::queue::Queue;
use crate::servers::{self, Origin, Running, Server};

/// The stores of the design, with the servers that their tests need.
pub(crate) const STORES: [(&str, &[Server]); 5] = [
    ("memory", &[]),
    ("postgres", &[Server::Postgres]),
    ("mongodb", &[Server::Mongodb]),
    ("mysql", &[Server::Mysql, Server::Mariadb]),
    ("sqlite", &[]),
];
/// The shared code of the SQL stores, with the servers that its own tests need.
pub(crate) const SHARED_SQL: (&str, &[Server]) =
    ("core", &[Server::Postgres, Server::Mysql, Server::Mariadb]);
/// The server that only tests outside of the suite need.
const POOLER: (&str, &[Server]) = ("postgres", &[Server::Pgbouncer]);

/// The number of waiting programs that run at once: beside the busy ones, a third program on two cores. More of them
/// compete for time, and tests that depend on a lease need some to spare.
const WAITING_AT_ONCE: usize = 1;

/// Starts the servers that the stores need, runs all tests, and stops the servers that it started.
pub(crate) fn test(workspace: &Path, long: bool) -> Result<()> {
    let packages = members(workspace)?;
    let needed = servers_for(&packages);
    let tally =
        servers::during(workspace, &needed, false, |running| run(workspace, &packages, running, long))?;
    print!("\n{}{}", tally.output, tally.summary(&packages));
    match tally.failures(&packages) {
        failures if failures.is_empty() => Ok(()),
        failures => bail!("{}", failures.join("; ")),
    }
}

/// The names of the workspace's crates.
fn members(workspace: &Path) -> Result<Vec<String>> {
    let out = crate::cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata failed")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    Ok(packages.iter().filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

fn servers_for(packages: &[String]) -> Vec<Server> {
    let users =
        STORES.iter().chain([&SHARED_SQL, &POOLER]).filter(|(store, _)| packages.contains(&crate_of(store)));
    let mut needed = Vec::new();
    for server in users.flat_map(|(_, servers)| *servers) {
        if !needed.contains(server) {
            needed.push(*server);
        }
    }
    needed
}

pub(crate) fn crate_of(store: &str) -> String {
    format!("ratchet-store-{store}")
}

fn run(workspace: &Path, packages: &[String], running: &[Running], long: bool) -> Result<Tally> {
    let begun = Instant::now();
    let programs = program::build(workspace)?;
    space::check(workspace)?;
    let built = begun.elapsed();
    let mut tally = Tally::default();
    let setting = Setting::new(running, long)?;
    run_all(programs, &setting, |ended| {
        println!("{}", tally.add(ended));
    })?;
    for test in tally.worth_another_try() {
        let ended = test.program.run_only(&test.name, &setting)?;
        println!("{}", tally.add_another_try(test, &ended));
    }
    let given = running.iter().filter(|server| server.origin == Origin::Given).count();
    println!(
        "\n{} crates, {} servers ({given} given), built in {:.0} s, ran for {:.0} s",
        packages.len(),
        running.len(),
        built.as_secs_f64(),
        (begun.elapsed() - built).as_secs_f64()
    );
    Ok(tally)
}

/// Runs all programs and calls `ended` with each result.
fn run_all(programs: Vec<Program>, setting: &Setting<'_>, mut ended: impl FnMut(Ended)) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (waiting, mut busy): (Vec<Program>, Vec<Program>) =
        programs.into_iter().partition(|program| program.waits().is_some());
    busy.sort_by_key(Program::turn);
    let queues = [(Queue::new(waiting), WAITING_AT_ONCE), (Queue::new(busy), cores)];
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for (queue, lanes) in &queues {
            for _ in 0..*lanes {
                let sender = sender.clone();
                scope.spawn(move || {
                    while let Some(program) = queue.next() {
                        // The receiver is gone after an error.
                        if sender.send(program.run(setting)).is_err() {
                            break;
                        }
                    }
                });
            }
        }
        drop(sender);
        for outcome in receiver {
            ended(outcome?);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_the_servers_of_stores_that_exist_are_needed() {
        assert_eq!(servers_for(&packages(&["ratchet-api", "ratchet-store-memory"])), []);
        assert_eq!(servers_for(&packages(&["ratchet-store-mongodb"])), [Server::Mongodb]);
        assert_eq!(servers_for(&packages(&["ratchet-store-mysql"])), [Server::Mysql, Server::Mariadb]);
        assert_eq!(
            servers_for(&packages(&["ratchet-store-postgres"])),
            [Server::Postgres, Server::Pgbouncer]
        );
    }

    #[test]
    fn what_the_sql_stores_share_needs_every_sql_server_and_none_twice() {
        let every = [Server::Postgres, Server::Mysql, Server::Mariadb];
        assert_eq!(servers_for(&packages(&["ratchet-store-core"])), every);
        let both = servers_for(&packages(&["ratchet-store-core", "ratchet-store-postgres"]));
        assert_eq!(both, [Server::Postgres, Server::Mysql, Server::Mariadb, Server::Pgbouncer]);
    }
}
