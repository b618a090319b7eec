//! A web service on PostgreSQL that submits jobs and runs them, in one process.
//!
//! `DATABASE_URL=postgres://… cargo run -p guide --bin postgres`

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use ratchet_core::{JobContext, JobId, JobStatus, Ratchet, Scheduler, StoreError, SubmitError, jobs};
use ratchet_store_postgres::{PostgresOptions, PostgresStore};
use serde::{Deserialize, Serialize};

struct Mailer;

#[jobs(target = "mail.Mailer")]
impl Mailer {
    #[job(max_retries = 5, backoff = "exponential 30s", timeout = "5m")]
    async fn welcome(&self, ctx: &JobContext, name: String) -> anyhow::Result<String> {
        ctx.info(format!("writing to {name}"));
        Ok(format!("welcome, {name}"))
    }
}

#[derive(Deserialize)]
struct SignUp {
    name: String,
}

#[derive(Serialize)]
struct Submitted {
    job: JobId,
}

#[derive(Serialize)]
struct Shown {
    status: JobStatus,
    failures: u32,
}

/// Replies as soon as the job is stored. A request that is sent twice makes one job.
async fn sign_up(
    State(scheduler): State<Arc<Scheduler>>,
    Json(SignUp { name }): Json<SignUp>,
) -> Result<(StatusCode, Json<Submitted>), Failed> {
    let key = format!("welcome {name}");
    let job = scheduler.enqueue(Mailer::job().welcome(name)).idempotency_key(key).submit().await?;
    Ok((StatusCode::ACCEPTED, Json(Submitted { job: job.id() })))
}

async fn show(State(scheduler): State<Arc<Scheduler>>, Path(id): Path<JobId>) -> Result<Json<Shown>, Failed> {
    let job = scheduler.client().job::<String>(id).job().await?.ok_or(Failed(StatusCode::NOT_FOUND))?;
    Ok(Json(Shown { status: job.status, failures: job.attempts }))
}

/// Answers a readiness probe: no while the node starts, stops or has lost its lease.
async fn ready(State(scheduler): State<Arc<Scheduler>>) -> StatusCode {
    match scheduler.readiness().takes_work() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").context("set DATABASE_URL")?;
    let store = PostgresStore::connect(&url, PostgresOptions::default().migrate(true).connections(5)).await?;
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

/// The response to a request that failed.
struct Failed(StatusCode);

impl From<SubmitError> for Failed {
    fn from(error: SubmitError) -> Self {
        eprintln!("{error}");
        Self(match error {
            SubmitError::Invalid(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        })
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        eprintln!("{error}");
        Self(StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl axum::response::IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        self.0.into_response()
    }
}
