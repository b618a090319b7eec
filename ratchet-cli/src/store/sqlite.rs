//! Stores in SQLite files.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ratchet_api::StoreErrorKind;
use ratchet_api::store::JobStore;
use ratchet_store_core::{Namespace, SchemaMigrator};
use ratchet_store_sqlite::{SqliteOptions, SqliteStore};

/// Opens an existing, current file. The store itself would create a missing file and migrate an old one.
pub(super) async fn open(file: &Path, namespace: Namespace, connections: usize) -> Result<Arc<dyn JobStore>> {
    must_exist(file)?;
    match migrator(file, namespace.clone())?.ensure("open", false).await {
        Err(error) if error.kind() == StoreErrorKind::NotMigrated => return Err(error.into()),
        // Opening the file explains its other problems better.
        _ => {}
    }
    let mut options = SqliteOptions::default();
    options.namespace = namespace;
    options.readers = connections;
    Ok(Arc::new(SqliteStore::open_with(file, options).await?))
}

pub(super) fn migrator(file: &Path, namespace: Namespace) -> Result<SchemaMigrator> {
    Ok(SqliteStore::migrator(file, namespace)?)
}

/// Refuses a missing file: a typo in a path must not create a new, empty store.
pub(super) fn must_exist(file: &Path) -> Result<()> {
    ensure!(
        file.exists(),
        "{} does not exist; check the path, or make it with `ratchet migrate`",
        file.display()
    );
    Ok(())
}
