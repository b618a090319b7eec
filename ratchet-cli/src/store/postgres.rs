//! Stores in PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use ratchet_api::store::JobStore;
use ratchet_store_core::{Namespace, SchemaMigrator};
use ratchet_store_postgres::{Pooler, PostgresOptions, PostgresStore};

pub(super) async fn open(url: &str, namespace: Namespace, connections: usize) -> Result<Arc<dyn JobStore>> {
    let mut options = PostgresOptions::default();
    options.namespace = namespace;
    options.connections = connections;
    // Works with and without a pooler; a person does not notice that it is slower.
    options.pooler = Pooler::Transaction;
    Ok(Arc::new(PostgresStore::connect(url, options).await?))
}

pub(super) fn migrator(url: &str, namespace: Namespace) -> Result<SchemaMigrator> {
    Ok(PostgresStore::migrator(url, namespace)?)
}
