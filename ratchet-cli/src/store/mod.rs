//! The store that a command uses: which one, where, and how it is opened.

mod location;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use ratchet_api::store::JobStore;
use ratchet_core::{Client, Ratchet};

pub(crate) use location::Location;

use crate::output::migration::{Applied, Versions};

/// The location options of a store.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// sqlite:FILE or a file ending in .db, postgres://…, mongodb://…
    // A password in it must not be shown by --help.
    #[arg(long, global = true, env = "RATCHET_URL", hide_env_values = true, value_name = "URL")]
    url: Option<String>,

    /// The schema of the tables (PostgreSQL) or the database (MongoDB) [default: ratchet]
    #[arg(long, global = true, env = "RATCHET_SCHEMA", hide_env_values = true, value_name = "NAME")]
    schema: Option<String>,

    /// The prefix of the names of tables or collections
    #[arg(long, global = true, env = "RATCHET_PREFIX", hide_env_values = true, value_name = "PREFIX")]
    prefix: Option<String>,
}

impl StoreArgs {
    /// The location that the URL names.
    pub(crate) fn location(&self) -> Result<Location> {
        let url = self.url.as_deref().filter(|url| !url.is_empty());
        Location::parse(url.context(
            "no store is given; name one with --url or RATCHET_URL, such as `--url jobs.db`, \
             `--url postgres://me@db/app` or `--url mongodb://db/?replicaSet=rs0`",
        )?)
    }

    /// Opens the store for a client that reads and controls. Refuses tables that are not up to date.
    pub(crate) async fn open(&self) -> Result<Client> {
        Ok(Ratchet::client_shared(self.connect(1).await?))
    }

    /// Opens the store with at most this many connections, where the driver lets its user choose. Refuses tables that
    /// are not up to date.
    pub(crate) async fn connect(&self, connections: usize) -> Result<Arc<dyn JobStore>> {
        match self.location()? {
            #[cfg(feature = "sqlite")]
            Location::Sqlite(file) => sqlite::open(&file, self.flat()?, connections).await,
            #[cfg(feature = "postgres")]
            Location::Postgres(url) => postgres::open(&url, self.namespace()?, connections).await,
            #[cfg(feature = "mongodb")]
            Location::MongoDb(url) => mongodb::open(&url, self).await,
            #[allow(unreachable_patterns, reason = "not with every driver built in")]
            other => Err(other.not_built_in()),
        }
    }

    /// Creates the tables, or brings them up to date.
    pub(crate) async fn migrate(&self) -> Result<Applied> {
        match self.location()? {
            #[cfg(feature = "sqlite")]
            Location::Sqlite(file) => migrate(&sqlite::migrator(&file, self.flat()?)?).await,
            #[cfg(feature = "postgres")]
            Location::Postgres(url) => migrate(&postgres::migrator(&url, self.namespace()?)?).await,
            #[cfg(feature = "mongodb")]
            Location::MongoDb(url) => mongodb::migrate(&url, self).await,
            #[allow(unreachable_patterns, reason = "not with every driver built in")]
            other => Err(other.not_built_in()),
        }
    }

    /// Reads which versions of the tables are applied. Changes nothing.
    pub(crate) async fn versions(&self) -> Result<Versions> {
        match self.location()? {
            #[cfg(feature = "sqlite")]
            Location::Sqlite(file) => {
                sqlite::must_exist(&file)?;
                versions(&sqlite::migrator(&file, self.flat()?)?).await
            }
            #[cfg(feature = "postgres")]
            Location::Postgres(url) => versions(&postgres::migrator(&url, self.namespace()?)?).await,
            #[cfg(feature = "mongodb")]
            Location::MongoDb(_) => anyhow::bail!(
                "MongoDB has no versions to list; `ratchet migrate` makes collections and indexes that are missing"
            ),
            #[allow(unreachable_patterns, reason = "not with every driver built in")]
            other => Err(other.not_built_in()),
        }
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql {
    use anyhow::{Result, ensure};
    use ratchet_store_core::{Namespace, SchemaMigrator};

    use super::{Applied, StoreArgs, Versions};
    use crate::output::progress;

    impl StoreArgs {
        /// The namespace on a server with schemas.
        #[cfg(feature = "postgres")]
        pub(super) fn namespace(&self) -> Result<Namespace> {
            let one = self.schema.is_none() || self.prefix.is_none();
            ensure!(one, "--schema and --prefix exclude each other: tables are in one place");
            let prefix = || self.prefix.as_ref().map(Namespace::prefix);
            Ok(self.schema.as_ref().map(Namespace::schema).or_else(prefix).transpose()?.unwrap_or_default())
        }

        /// The namespace in a file, which has no schemas.
        #[cfg(feature = "sqlite")]
        pub(super) fn flat(&self) -> Result<Namespace> {
            ensure!(self.schema.is_none(), "SQLite has no schemas; use --prefix, or a file of its own");
            Ok(self.prefix.as_ref().map_or_else(|| Ok(Namespace::bare()), Namespace::prefix)?)
        }
    }

    pub(super) async fn migrate(migrator: &SchemaMigrator) -> Result<Applied> {
        let applied = migrator.migrate(|step| progress(&step.to_string())).await?;
        Ok(Applied { applied: Some(applied.iter().map(ToString::to_string).collect()) })
    }

    pub(super) async fn versions(migrator: &SchemaMigrator) -> Result<Versions> {
        Ok(Versions::of(&migrator.status().await?))
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use sql::{migrate, versions};
