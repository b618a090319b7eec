//! Stopping servers.

use std::path::Path;

use anyhow::{Result, bail};

use super::{
    cache::{Cache, Record, remove_directory},
    data::DataDirectory,
    for_each,
    progress::Progress,
    recipes::recipe,
    replica_set,
};
use crate::Server;

/// Stops the servers that this checkout started; a server that is not running is no error. `wipe` removes their data.
///
/// # Errors
/// A process does not end, or files cannot be removed.
pub fn down(workspace: &Path, servers: &[Server], wipe: bool) -> Result<()> {
    let cache = Cache::open(workspace)?;
    let _lock = cache.lock_checkout()?;
    let outcomes = for_each(servers, |server| {
        Progress::ticking(server.name(), "checking the process", |progress| {
            stop(&cache, server, wipe, progress)
        })
    });
    let mut failures = 0;
    for (server, outcome) in outcomes {
        match outcome {
            Ok(what) => println!("{server:<9} {what}"),
            Err(err) => {
                eprintln!("{server:<9} {err:#}");
                failures += 1;
            }
        }
    }
    if failures > 0 {
        bail!("{failures} servers did not stop");
    }
    Ok(())
}

fn stop(cache: &Cache, server: Server, wipe: bool, progress: &Progress) -> Result<&'static str> {
    let directory = cache.server_directory(server)?;
    let mut said = "was not running";
    if let Some(mut record) = Record::read(&directory)?
        && let Some(process) = record.endpoint.process.take()
    {
        let others = replica_set::others(&directory)?;
        if process.is_alive() {
            let signal =
                if others.is_empty() { recipe(server).stop_signal() } else { replica_set::STOP_SIGNAL };
            let ended = progress.step(format!("stopping with SIG{signal}"), || process.stop(signal))?;
            said = if ended { "stopped" } else { "killed" };
        }
        for member in others {
            progress.step("stopping another member", || member.stop())?;
        }
        record.write(&directory)?;
    }
    if wipe {
        progress.step("removing its data", || {
            DataDirectory::remove(&directory)?;
            remove_directory(&directory)
        })?;
    }
    Ok(said)
}
