//! `ratchet status`

use std::fmt;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::output::dead_letter::Groups;
use crate::output::node::Nodes;
use crate::output::queue::Queues;
use crate::output::{Instant, Output};
use crate::store::StoreArgs;

/// The most groups of dead letters on the screen.
const GROUPS: usize = 10;

/// `ratchet status`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet status
  ratchet status --url jobs.db --json | jq '.queues[] | select(.paused)'")]
pub(crate) struct Arguments {}

/// The state of a store.
#[derive(Serialize)]
struct Status {
    store: Store,
    database_time: Instant,
    #[serde(flatten)]
    queues: Queues,
    nodes: Nodes,
    dead_letters: DeadLetters,
}

#[derive(Serialize)]
struct DeadLetters {
    /// The number of dead letters in all groups.
    count: u64,
    /// The largest groups.
    #[serde(flatten)]
    groups: Groups,
}

#[derive(Serialize)]
struct Store {
    kind: &'static str,
    location: String,
}

pub(crate) async fn run(_: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let client = place.open().await?;
    let store = client.store();
    let now = Instant(store.database_time().await?);
    let queues = Queues::of(store.queue_health().await?);
    let status = Status {
        store: Store { kind: store.name(), location: place.location()?.to_string() },
        database_time: now,
        nodes: Nodes::of(store.nodes().await?, now),
        dead_letters: DeadLetters {
            count: queues.queues.iter().map(|queue| queue.failed).sum(),
            groups: Groups::of(store.dead_letters(GROUPS).await?, now),
        },
        queues,
    };
    output.show(&status)?;
    Ok(ExitCode::SUCCESS)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Store  {} at {}", self.store.kind, self.store.location)?;
        writeln!(f, "Time   {}", self.database_time)?;
        write!(f, "\nQueues\n{}\nNodes\n{}", self.queues, self.nodes)?;
        write!(f, "\nDead letters: {}\n{}", self.dead_letters.count, self.dead_letters.groups)
    }
}
