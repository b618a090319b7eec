//! Stores in PostgreSQL.

use anyhow::Result;
use ratchet_core::{Client, Ratchet};
use ratchet_store_core::{Namespace, SchemaMigrator};
use ratchet_store_postgres::{Pooler, PostgresOptions, PostgresStore};

pub(super) async fn open(url: &str, namespace: Namespace) -> Result<Client> {
    let mut options = PostgresOptions::default();
    options.namespace = namespace;
    options.connections = 1;
    // Right with and without a pooler, and a person does not notice that it is slower.
    options.pooler = Pooler::Transaction;
    Ok(Ratchet::client(PostgresStore::connect(url, options).await?))
}

pub(super) fn migrator(url: &str, namespace: Namespace) -> Result<SchemaMigrator> {
    Ok(PostgresStore::migrator(url, namespace)?)
}
