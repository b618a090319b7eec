//! A process that runs jobs until it is asked to end, as under systemd or Kubernetes. SIGTERM lets what runs end; a second
//! one does not.
//!
//! `cargo run -p worker -- jobs.db`

use std::path::PathBuf;
use std::time::Duration;

use ratchet_core::defaults::PackagePrefixClassPolicy;
use ratchet_core::{JobContext, JobFailure, Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;

struct Reports;

#[jobs(target = "shop.Reports")]
impl Reports {
    /// Takes as many steps as it is told to, and lets go between two of them when its node is about to stop.
    #[job]
    async fn write(&self, ctx: &JobContext, steps: u64) -> Result<(), JobFailure> {
        println!("writing");
        for step in 0..steps {
            if ctx.is_cancelled() {
                println!("interrupted");
                return Ok(());
            }
            ctx.progress(step, steps, None).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("written");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("jobs.db"), PathBuf::from);
    let scheduler = Ratchet::builder(SqliteStore::open(file).await?)
        .bean(Reports)
        .class_policy(PackagePrefixClassPolicy::allow(["shop."]))
        .configure(|options| options.execution.queue("default").slots = 1)
        .start()
        .await?;
    println!("ready");
    scheduler.run_until_signal().await?;
    println!("stopped");
    Ok(())
}
