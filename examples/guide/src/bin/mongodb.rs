//! A web service on MongoDB that submits jobs and runs them, in one process.
//!
//! `MONGODB_URL=mongodb://…/?replicaSet=rs0 cargo run -p guide --bin mongodb`

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use ratchet_core::{JobContext, JobId, Ratchet, Scheduler, jobs};
use ratchet_store_mongodb::{MongoOptions, MongoStore};

struct Mailer;

#[jobs(target = "mail.Mailer")]
impl Mailer {
    #[job(max_retries = 5, backoff = "exponential 30s", timeout = "5m")]
    async fn welcome(&self, ctx: &JobContext, name: String) -> anyhow::Result<String> {
        ctx.info(format!("writing to {name}"));
        Ok(format!("welcome, {name}"))
    }
}

/// Replies as soon as a majority of the replica set has the job.
async fn sign_up(State(scheduler): State<Arc<Scheduler>>, name: String) -> Result<String, StatusCode> {
    let key = format!("welcome {name}");
    let job = scheduler.enqueue(Mailer::job().welcome(name)).idempotency_key(key).submit().await;
    Ok(job.map_err(failed)?.id().to_string())
}

async fn show(State(scheduler): State<Arc<Scheduler>>, Path(id): Path<JobId>) -> Result<String, StatusCode> {
    let job =
        scheduler.client().job::<String>(id).job().await.map_err(failed)?.ok_or(StatusCode::NOT_FOUND)?;
    Ok(job.status.to_string())
}

/// Answers a readiness probe: no while the node starts, stops or has lost its lease.
async fn ready(State(scheduler): State<Arc<Scheduler>>) -> StatusCode {
    match scheduler.readiness().takes_work() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn failed(error: impl std::error::Error) -> StatusCode {
    eprintln!("{error}");
    StatusCode::SERVICE_UNAVAILABLE
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("MONGODB_URL").context("set MONGODB_URL")?;
    // Creates missing collections and indexes: jobs_scheduler_job and so on, in the database `shop`.
    let store = MongoStore::connect(&url, MongoOptions::default().database("shop").prefix("jobs_")).await?;
    let scheduler = Ratchet::builder(store)
        .register(Mailer)
        .allow(["mail."])
        .configure(|options| options.execution.drain_timeout = Duration::from_secs(20))
        .start()
        .await?;
    let scheduler = Arc::new(scheduler);

    let app = Router::new()
        .route("/sign-ups", post(sign_up))
        .route("/jobs/{id}", get(show))
        .route("/ready", get(ready))
        .with_state(Arc::clone(&scheduler));
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);

    // SIGTERM or Ctrl-C: requests and jobs that run may end. A second one ends them at once.
    let server = axum::serve(listener, app).with_graceful_shutdown(scheduler.draining());
    if let Some(served) = scheduler.serve_until_signal(server).await? {
        served?;
    }
    println!("stopped");
    Ok(())
}
