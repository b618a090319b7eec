//! Probes of servers through their drivers: whether they work, and their version.

pub(crate) mod mongodb;
pub(crate) mod mysql;
pub(crate) mod postgres;

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result};

/// Long enough for a busy machine with two cores, short enough that `up` never seems to hang.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Runs a future to its end, on a runtime of its own.
fn ask<T>(limit: Duration, question: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { tokio::time::timeout(limit, question).await });
    // A lookup of a host name may still block a thread; it is not waited for.
    runtime.shutdown_background();
    answer.with_context(|| format!("no answer within {} s", limit.as_secs()))?
}

/// Fails if nothing listens on a port of this machine: a driver would wait and retry before it reports that.
pub(crate) fn check_port(port: u16) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, TIMEOUT)
        .map(drop)
        .with_context(|| format!("nothing listens on {address}"))
}
