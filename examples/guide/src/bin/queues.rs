//! Queues, priorities, and jobs for later.

use std::time::Duration;

use ratchet_core::{JobPriority, Ratchet, Timestamp, jobs};
use ratchet_store_sqlite::SqliteStore;

struct Office;

#[jobs(target = "office.Office")]
impl Office {
    #[job]
    async fn letter(&self, text: String) {
        println!("letter: {text}");
    }

    /// Runs in the queue `reports` by default. A submission can name another one.
    #[job(queue = "reports", priority = "low")]
    async fn report(&self, year: u16) {
        println!("report: {year}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A client submits and runs nothing, so all of these jobs wait until a node starts.
    let client = Ratchet::client(SqliteStore::open("jobs.db").await?);
    let letter = |text: &str| client.enqueue(Office::job().letter(text.to_owned()));
    let mut waiting = vec![
        letter("low").priority(JobPriority::Low).submit().await?,
        letter("normal").submit().await?,
        letter("critical").priority(JobPriority::Critical).submit().await?,
    ];

    let node = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Office)
        .allow(["office."])
        .configure(|options| {
            options.execution.queue("default").slots = 1; // one letter at a time on this node
            options.execution.queue("reports").slots = 4; // and beside it up to four reports
        })
        .start()
        .await?;
    for job in waiting.drain(..) {
        job.result().await?;
    }

    // A node serves only queues that it names.
    let report = client.enqueue(Office::job().report(2026)).submit().await?;
    report.result().await?;

    // Started no earlier than the first time, and not after the second.
    let soon = letter("in a moment").delay(Duration::from_millis(100)).submit().await?;
    soon.result().await?;
    let yesterday = Timestamp::node_now() - Duration::from_secs(86_400);
    let late = letter("too late").expires_at(yesterday).submit().await?;
    println!("too late: {}", late.ended().await?.status);

    node.stop().await;
    Ok(())
}
