//! One bad row affects no other: every wrong value that its database accepts is written to every column of every table,
//! in rows of every state; all other jobs succeed, reads and controls get answers, and the node comes to rest.
//!
//! The columns are read from the catalogue, so a new one is tried the day it is made. Many damages share a world, each
//! with rows of its own. If a world fails, it is halved until the message names the damage.

mod damages;
mod innocent;
mod mongo;
mod own;
mod reads;
mod scenes;
mod sql;
mod stage;
mod steer;
mod tables;
mod values;
mod watch;
mod world;

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;

use crate::damages::Damage;
use crate::tables::Tables;
use crate::world::Report;

/// Serializes the tests, because each counts the warnings of the whole program.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

type Make = fn() -> BoxFuture<'static, Arc<dyn Tables>>;

async fn try_all(make: Make) {
    let _alone = ONE_AT_A_TIME.lock().await;
    watch::keep_warnings();
    let begun = Instant::now();
    let tables = make().await;
    let name = tables.name();
    let damages = damages::damages(tables).await;
    let damages = filtered(damages);
    let report = world::run(make().await, &damages).await;
    println!(
        "{name}: {} damages applied, {} refused by the server, {:?}",
        report.applied,
        report.refused,
        begun.elapsed()
    );
    if report.violations.is_empty() {
        return;
    }
    let mut told = report.violations.clone();
    if !report.named && std::env::var_os("RATCHET_DAMAGE").is_none() {
        told.extend(blame(make, damages, &report).await);
    }
    panic!("{name}: {} violations\n{}", told.len(), told.join("\n"));
}

/// Keeps the damages that `RATCHET_DAMAGE` names, such as `scheduler_node.lease_until`.
fn filtered(damages: Vec<Damage>) -> Vec<Damage> {
    let only = std::env::var("RATCHET_DAMAGE").unwrap_or_default();
    damages.into_iter().filter(|damage| damage.to_string().contains(&only)).collect()
}

/// Bisects the damages into the smallest parts that fail by themselves, within a limited number of tries.
async fn blame(make: Make, damages: Vec<Damage>, whole: &Report) -> Vec<String> {
    const TRIES: usize = 60;
    let mut open = vec![damages];
    let mut blamed = Vec::new();
    for _ in 0..TRIES {
        let Some(part) = open.pop() else { break };
        let (left, right) = part.split_at(part.len() / 2);
        for half in [left, right].into_iter().filter(|half| !half.is_empty()) {
            let report = world::run(make().await, half).await;
            match half {
                _ if report.violations.is_empty() || report.named => {}
                [damage] => blamed.push(format!("{damage}: {}", report.violations.join("; "))),
                _ => open.push(half.to_vec()),
            }
        }
    }
    blamed.push(format!("{} violations were found together", whole.violations.len()));
    blamed
}

async fn try_own_row(make: Make) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (tables, begun) = (make().await, Instant::now());
    let name = tables.name();
    let applied = own::run(tables).await;
    println!("{name}: {applied} damages of a running node's own row, {:?}", begun.elapsed());
}

fn make_sqlite() -> BoxFuture<'static, Arc<dyn Tables>> {
    Box::pin(async { Arc::new(sql::Sqlite::default()) as Arc<dyn Tables> })
}

fn make_postgres() -> BoxFuture<'static, Arc<dyn Tables>> {
    Box::pin(async { Arc::new(sql::Postgres::new().await) as Arc<dyn Tables> })
}

fn make_mongodb() -> BoxFuture<'static, Arc<dyn Tables>> {
    Box::pin(async { Arc::new(mongo::Mongo::default()) as Arc<dyn Tables> })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    try_all(make_sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    try_all(make_postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb() {
    try_all(make_mongodb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_row_on_sqlite() {
    try_own_row(make_sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_row_on_postgres() {
    try_own_row(make_postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_row_on_mongodb() {
    try_own_row(make_mongodb).await;
}
