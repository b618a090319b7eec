//! A PostgreSQL schema, behind a proxy that can cut it off.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use ratchet_servers::Server;
use ratchet_store_core::{Dialect, Statement};
use ratchet_store_postgres::{Namespace, PostgresOptions, PostgresStore};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::sql::{self, RECORDED, Sql, recorded};
use super::{Change, Excess, Recorded, Rest, Witness, hold};
use crate::cluster::Cluster;
use crate::proxy::Proxy;

/// A schema with a unique name.
pub(crate) struct Postgres {
    /// The server, not through the proxy, with the schema in the search path.
    server: PgConnectOptions,
    schema: Namespace,
    name: String,
    proxied: String,
    proxy: Proxy,
    /// The server and its standby, if they were made for this run.
    cluster: Option<Mutex<Cluster>>,
}

impl Postgres {
    /// Creates it on the server of the tests, or on one of its own that has a standby.
    pub(crate) async fn make(with_standby: bool) -> Result<Self> {
        let mut url = ratchet_servers::url(Server::Postgres)?;
        let cluster = if with_standby { Some(Cluster::start(&url).await?) } else { None };
        if let Some(cluster) = &cluster {
            url = Cluster::url(cluster.port());
        }
        let name = format!("torture_{:016x}", rand::random::<u64>());
        let schema = Namespace::schema(&name)?;
        PostgresStore::migrator(&url, schema.clone())?.migrate(|_| {}).await?;
        let server: PgConnectOptions = url.parse()?;
        let proxy = Proxy::to(server.get_host(), server.get_port()).await?;
        let (user, database) = (server.get_username(), server.get_database().unwrap_or("postgres"));
        let proxied = format!("postgres://{user}@127.0.0.1:{}/{database}", proxy.port());
        // After a failover the primary is found only through the proxy.
        let server = if with_standby { server.port(proxy.port()) } else { server };
        let server = server.options([("search_path", &name)]);
        let place = Self { server, schema, name, proxied, proxy, cluster: cluster.map(Mutex::new) };
        sqlx::raw_sql(include_str!("postgres.sql")).execute(&mut place.connection().await?).await?;
        Ok(place)
    }

    async fn connection(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.server).await?)
    }
}

/// A store in this schema.
pub(crate) async fn open(url: &str, schema: Namespace) -> Result<Arc<dyn JobStore>> {
    let mut options = PostgresOptions::default();
    options.namespace = schema;
    Ok(Arc::new(PostgresStore::connect(url, options).await?))
}

#[async_trait]
impl Witness for Postgres {
    async fn store(&self) -> Result<Arc<dyn JobStore>> {
        open(&self.proxied, self.schema.clone()).await
    }

    fn address(&self) -> Vec<String> {
        ["--postgres", &self.proxied, "--schema", &self.name].map(str::to_owned).into()
    }

    async fn cut(&self) -> Result<()> {
        self.proxy.cut();
        Ok(())
    }

    async fn mend(&self) -> Result<()> {
        self.proxy.mend();
        Ok(())
    }

    /// Kills one backend: the server then ends all others and recovers from its log.
    async fn crash(&self) -> Result<bool> {
        let mut victim = self.connection().await?;
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut victim).await?;
        // The number may belong to another machine.
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        anyhow::ensure!(program.trim() == "postgres", "the server is not on this machine");
        crate::fleet::signal("KILL", &pid.to_string()).await?;
        while self.connection().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(true)
    }

    async fn fail_over(&self, reading: Duration) -> Result<i64> {
        let cluster = self.cluster.as_ref().context("this server has no standby")?;
        cluster.lock().await.fail_over(&self.proxy, reading).await
    }

    async fn changes(&self) -> Result<Vec<Change>> {
        let rows = sqlx::query(
            "SELECT job_id, (date_part('epoch', at) * 1000)::bigint AS at, old_status, old_owner, old_fence,
                new_status, new_owner, new_fence, (date_part('epoch', old_lease) * 1000)::bigint AS old_lease,
                (date_part('epoch', due) * 1000)::bigint AS due
            FROM torture_change ORDER BY seq",
        );
        let rows = rows.fetch_all(&mut self.connection().await?).await?;
        let change = |row: sqlx::postgres::PgRow| -> Result<Change> {
            Ok(Change {
                job: JobId::from_uuid(row.try_get::<Uuid, _>("job_id")?),
                at: row.try_get("at")?,
                old: hold(row.try_get("old_status")?, row.try_get("old_owner")?, row.try_get("old_fence")?),
                new: hold(row.try_get("new_status")?, row.try_get("new_owner")?, row.try_get("new_fence")?),
                old_lease: row.try_get("old_lease")?,
                due: row.try_get("due")?,
            })
        };
        rows.into_iter().map(change).collect()
    }

    async fn recorded(&self) -> Result<Vec<Recorded>> {
        let rows = sqlx::query_as(RECORDED).fetch_all(&mut self.connection().await?).await?;
        Ok(rows.into_iter().map(recorded).collect())
    }

    async fn excess(&self) -> Result<Excess> {
        sql::excess(self).await
    }

    async fn rest(&self) -> Result<Rest> {
        sql::rest(self).await
    }

    async fn spoil(&self) -> Result<()> {
        sql::spoil(self).await
    }

    async fn remove(&self) -> Result<()> {
        if let Some(cluster) = &self.cluster {
            return cluster.lock().await.stop().await;
        }
        let drop = Statement::compile("DROP SCHEMA ratchet CASCADE", Dialect::Postgres, &self.schema)?;
        sqlx::raw_sql(drop.sql()).execute(&mut self.connection().await?).await?;
        Ok(())
    }
}

#[async_trait]
impl Sql for Postgres {
    async fn count(&self, query: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(query).fetch_one(&mut self.connection().await?).await?)
    }

    async fn execute(&self, statement: &'static str) -> Result<()> {
        sqlx::query(statement).execute(&mut self.connection().await?).await?;
        Ok(())
    }
}
