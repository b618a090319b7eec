//! A worker for Kubernetes: runs jobs until it is told to stop, and answers probes.
//!
//! `DATABASE_URL=postgres://… cargo run -p guide --bin worker_pod`

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ratchet_core::{JobContext, JobFailure, Ratchet, jobs};
use ratchet_store_postgres::{PostgresOptions, PostgresStore};

struct Reports;

#[jobs(target = "shop.Reports")]
impl Reports {
    /// Saves its progress when its node stops; another node runs the job again.
    #[job(queue = "reports")]
    async fn write(&self, ctx: &JobContext, pages: u64) -> Result<(), JobFailure> {
        for page in 0..pages {
            if ctx.is_canceled() {
                return Ok(()); // the job goes back with nothing consumed
            }
            ctx.progress(page, pages, None).await;
            tokio::time::sleep(Duration::from_millis(100)).await; // the work
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").context("set DATABASE_URL")?;
    // The tables are made by `ratchet migrate` before the rollout: a worker does not change the schema.
    let store = PostgresStore::connect(&url, PostgresOptions::default()).await?;
    let scheduler = Ratchet::builder(store)
        .register(Reports)
        .allow(["shop."])
        .configure(|options| {
            options.node.label = std::env::var("POD_NAME").ok(); // else host name and process id
            options.execution.queues.clear(); // the queue `default` is for others
            options.execution.queue("reports").slots = 10;
            options.execution.drain_timeout = Duration::from_secs(40);
        })
        .start()
        .await?;
    let scheduler = Arc::new(scheduler);

    let node = Arc::clone(&scheduler);
    let ready = move || async move {
        match node.readiness().takes_work() {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        }
    };
    let probes = Router::new().route("/ready", get(ready)).route("/live", get(StatusCode::OK));
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "0.0.0.0:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("probes on {}", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, probes).into_future());

    scheduler.run_until_signal().await?;
    println!("stopped");
    Ok(())
}
