//! Finding, downloading, starting, probing and stopping servers, for `cargo xtask`.

mod account;
mod apt;
mod cache;
mod command_line;
mod data;
mod down;
mod launch;
mod probe;
mod progress;
mod recipes;
mod replica_set;
mod stop;
mod up;
mod url;

use std::{
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, bail};

use self::{apt::Suite, cache::Cache, progress::Progress};
pub use self::{
    down::down,
    up::{Origin, Running, Wanted, during, live_servers, print_env, up},
};
use crate::Server;

/// The libfaketime library, which gives a process another clock: the installed one, else the one in the cache, else it
/// is downloaded.
///
/// # Errors
/// The package cannot be downloaded.
pub fn faketime(workspace: &Path) -> Result<PathBuf> {
    if let Some(library) = faketime_below(Path::new("/usr/lib")) {
        eprintln!("libfaketime is installed: {}", library.display());
        return Ok(library);
    }
    let cache = Cache::open(workspace)?;
    let root = Progress::ticking("faketime", "checking the cache", |progress| {
        apt::unpack(&cache.shared(), "libfaketime", Suite::Machine, progress)
    })?;
    faketime_below(&root.join("usr/lib")).context("the package has no libfaketime.so.1")
}

/// The library in the folder of an architecture.
fn faketime_below(folder: &Path) -> Option<PathBuf> {
    let kinds = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut libraries = kinds.map(|kind| kind.path().join("faketime/libfaketime.so.1"));
    libraries.find(|library| library.is_file())
}

/// Does the same for each server, in a thread of its own.
fn for_each<T: Send>(
    servers: &[Server],
    work: impl Fn(Server) -> Result<T> + Sync,
) -> Vec<(Server, Result<T>)> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            servers.iter().map(|server| (*server, scope.spawn(move || work(*server)))).collect();
        let join = |(server, thread): (Server, thread::ScopedJoinHandle<'_, Result<T>>)| {
            (server, thread.join().unwrap_or_else(|_| bail!("the work on {server} panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}
