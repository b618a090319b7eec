//! `ratchet queues`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ratchet_api::{JobPriority, QueueName};

use crate::output::Output;
use crate::output::queue::{Queues, Switched};
use crate::store::StoreArgs;

/// `ratchet queues`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet queues                  # how they are doing
  ratchet queues pause mail       # no node takes a job of `mail` any more; jobs still go in
  ratchet queues resume mail")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stop claims from a queue in the whole cluster; running jobs continue
    #[command(after_help = "Example:\n  ratchet queues pause mail")]
    Pause(Queue),
    /// Allow claims from a queue again
    #[command(after_help = "Example:\n  ratchet queues resume mail")]
    Resume(Queue),
}

#[derive(Debug, clap::Args)]
struct Queue {
    /// The name of the queue
    #[arg(value_parser = |text: &str| QueueName::new(text))]
    name: QueueName,
}

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let client = place.open().await?;
    let store = client.store();
    let (queue, paused) = match &arguments.command {
        None => {
            output.show(&Queues::of(store.queue_health().await?))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::Pause(queue)) => (queue.name.clone(), true),
        Some(Command::Resume(queue)) => (queue.name.clone(), false),
    };
    let changed = store.set_queue_paused(&queue, paused).await?;
    if changed && !paused {
        client.wake_up(JobPriority::Normal);
    }
    client.close().await;
    output.show(&Switched { queue, paused, changed })?;
    Ok(ExitCode::SUCCESS)
}
