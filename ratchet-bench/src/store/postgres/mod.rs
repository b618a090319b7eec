//! The PostgreSQL store: a schema for each place.

mod counted;
mod explain;
mod fill;
mod probe;

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{JobId, StoreClock};
use ratchet_servers::Server;
use ratchet_store_core::{Dialect, Statement};
use ratchet_store_postgres::{Namespace, PostgresOptions, PostgresStore};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::{Bench, Counted, Plan, Progress, TestDatabase};
use crate::backlog::{BOOST, Backlog};
use crate::enqueue::Shop;
use crate::lane::Lane;
use crate::latency::{WakeReceiver, WakeSender};
use crate::usage::family_cpu;

pub(super) struct Postgres {
    url: String,
    side: Mutex<PgConnection>,
    /// The process that serves `side`, if it runs on this machine.
    worker: Option<u32>,
}

impl Postgres {
    pub(super) async fn open() -> Result<Self> {
        let url = ratchet_servers::url(Server::Postgres)?;
        let mut side = PgConnection::connect(&url).await?;
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut side).await?;
        let is_here =
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.contains("postgres"));
        Ok(Self { url, side: Mutex::new(side), worker: is_here.then_some(pid.unsigned_abs()) })
    }
}

#[async_trait]
impl Bench for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn remarks(&self) -> Result<Vec<String>> {
        const DURABLE: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];
        let mut side = self.side.lock().await;
        let mut remarks = Vec::new();
        let version: String = sqlx::query_scalar("SELECT version()").fetch_one(&mut *side).await?;
        remarks.push(version);
        for setting in DURABLE {
            let value: String =
                sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(&mut *side).await?;
            if value != "on" {
                remarks.push(format!(
                    "WARNING: {setting} is {value}: these figures are NOT those of a durable server"
                ));
            }
        }
        Ok(remarks)
    }

    fn least_of_probe(&self) -> Option<f64> {
        Some(0.8)
    }

    async fn log_bytes(&self) -> Result<Option<u64>> {
        let position = sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");
        let position: i64 = position.fetch_one(&mut *self.side.lock().await).await?;
        Ok(u64::try_from(position).ok())
    }

    /// The number of transactions so far: each one that writes has a number.
    async fn commits(&self) -> Result<Option<u64>> {
        let next = sqlx::query_scalar("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint");
        let next: i64 = next.fetch_one(&mut *self.side.lock().await).await?;
        Ok(u64::try_from(next).ok())
    }

    fn usual_connections(&self) -> usize {
        PostgresOptions::default().connections
    }

    fn server_cpu(&self) -> Option<Duration> {
        family_cpu(self.worker?)
    }

    async fn place(&self) -> Result<Box<dyn TestDatabase>> {
        let schema = format!("bench_{:016x}", rand::random::<u64>());
        let place = PgPlace { url: self.url.clone(), schema };
        PostgresStore::migrator(&self.url, place.namespace()?)?.migrate(|_| {}).await?;
        Ok(Box::new(place))
    }

    fn place_at(&self, address: &str) -> Result<Box<dyn TestDatabase>> {
        Ok(Box::new(PgPlace { url: self.url.clone(), schema: address.to_owned() }))
    }
}

struct PgPlace {
    url: String,
    schema: String,
}

impl PgPlace {
    fn namespace(&self) -> Result<Namespace> {
        Ok(Namespace::schema(self.schema.clone())?)
    }

    async fn store(&self, url: &str, clock: StoreClock, connections: usize) -> Result<PostgresStore> {
        let mut options = PostgresOptions::default();
        options.namespace = self.namespace()?;
        options.clock = clock;
        options.connections = connections;
        options.operation_timeout = Duration::from_secs(600);
        Ok(PostgresStore::connect(url, options).await?)
    }

    /// A connection whose search path is this place's schema.
    async fn connection(&self) -> Result<PgConnection> {
        let options = PgConnectOptions::from_str(&self.url)?.options([("search_path", &self.schema)]);
        Ok(PgConnection::connect_with(&options).await?)
    }
}

#[async_trait]
impl TestDatabase for PgPlace {
    async fn connect(&self, clock: StoreClock, connections: usize) -> Result<Arc<dyn JobStore>> {
        Ok(Arc::new(self.store(&self.url, clock, connections).await?))
    }

    async fn fill(&self, backlog: Backlog, progress: &mut Progress) -> Result<()> {
        fill::fill(&mut self.connection().await?, backlog, progress).await
    }

    async fn tidy(&self) -> Result<()> {
        let mut connection = self.connection().await?;
        for command in ["VACUUM ANALYZE scheduler_job_queue", "VACUUM ANALYZE scheduler_job", "CHECKPOINT"] {
            sqlx::raw_sql(command).execute(&mut connection).await?;
        }
        Ok(())
    }

    async fn literal(&self, backlog: Backlog, queue: &str, limit: usize) -> Result<Vec<JobId>> {
        let ids = sqlx::query_scalar::<_, Uuid>(include_str!("literal.sql"))
            .bind(queue)
            .bind(backlog.now.to_datetime())
            .bind(BOOST.as_secs_f64())
            .bind(i64::try_from(limit)?)
            .fetch_all(&mut self.connection().await?)
            .await?;
        Ok(ids.into_iter().map(JobId::from_uuid).collect())
    }

    /// Counts locked rows by the traces in them, which outlast the transaction: a written row has its number as `xmin`,
    /// a row that was only locked has it as `xmax`.
    async fn locked_with(&self, job: JobId) -> Result<Option<u64>> {
        let touched = "SELECT count(*) FROM scheduler_job_queue q, scheduler_job_queue one \
                       WHERE one.job_id = $1 AND (q.xmin = one.xmin OR q.xmax = one.xmin)";
        let row = sqlx::query(touched).bind(job.as_uuid()).fetch_one(&mut self.connection().await?).await?;
        Ok(u64::try_from(row.try_get::<i64, _>(0)?).ok())
    }

    async fn plan(&self, clock: StoreClock, request: &ClaimRequest, most: u64) -> Result<Option<Plan>> {
        explain::plan(self, clock, request, most).await
    }

    async fn probe(&self, lanes: usize) -> Result<Option<Vec<Box<dyn Lane>>>> {
        probe::lanes(self, lanes).await.map(Some)
    }

    async fn shop(&self) -> Result<Option<Box<dyn Shop>>> {
        probe::shop(self).await.map(Some)
    }

    fn address(&self) -> Option<String> {
        Some(self.schema.clone())
    }

    async fn wake_receiver(&self) -> Result<Option<Box<dyn WakeReceiver>>> {
        probe::wake_receiver(self).await.map(Some)
    }

    async fn wake_sender(&self) -> Result<Option<Box<dyn WakeSender>>> {
        probe::wake_sender(self).await.map(Some)
    }

    async fn connect_counted(&self) -> Result<Option<Counted>> {
        let (url, count) = counted::to(&self.url)?;
        let store = self.store(&url, StoreClock::Server, 2).await?;
        Ok(Some((Arc::new(store), Box::new(move || count.load(Ordering::Relaxed)))))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        let drop = Statement::compile("DROP SCHEMA ratchet CASCADE", Dialect::Postgres, &self.namespace()?)?;
        sqlx::raw_sql(drop.sql()).execute(&mut self.connection().await?).await?;
        Ok(())
    }
}
