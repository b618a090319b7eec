//! Storing jobs inside a transaction of yours.

use async_trait::async_trait;
use ratchet_api::store::JobStore;
use ratchet_api::{Enlist, Inserted, StoreError, StoreErrorKind, StoreResult, Submission};
use ratchet_store_core::{Dialect, SqlStore};
use sqlx::{Sqlite, SqliteConnection, Transaction};

use crate::driver::{Link, SCRATCH_TABLES};

/// Marks this crate's implementations for the types of sqlx.
#[derive(Clone, Copy, Debug)]
pub struct InSqlite;

/// A connection that is inside a transaction, on the file of the store.
///
/// Begin the transaction with `BEGIN IMMEDIATE`: one that reads first and writes later is refused as soon as another
/// writer was faster.
#[async_trait]
impl Enlist<InSqlite> for SqliteConnection {
    async fn insert_in(
        &mut self,
        store: &dyn JobStore,
        submissions: &[Submission],
    ) -> StoreResult<Vec<Inserted>> {
        let store = SqlStore::behind(store, Dialect::Sqlite)?;
        let prepared = sqlx::raw_sql(SCRATCH_TABLES).execute(&mut *self).await;
        prepared.map_err(|error| {
            let detail = "the connection cannot have temporary tables";
            StoreError::new(StoreErrorKind::Other, "insert_in", detail).with_source(error)
        })?;
        store.insert_in(Box::new(Link::Theirs(self)), submissions).await
    }
}

/// The jobs exist once the transaction is committed, and never if it is rolled back.
///
/// ```no_run
/// use ratchet_api::store::JobStore;
/// use ratchet_api::{Enlist as _, Submission};
/// use sqlx::{Connection as _, SqliteConnection};
///
/// async fn place_order(db: &mut SqliteConnection, jobs: &dyn JobStore, receipt: Submission) -> Result<(), Box<dyn std::error::Error>> {
///     let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
///     sqlx::query("INSERT INTO orders DEFAULT VALUES").execute(&mut *tx).await?;
///     tx.insert_in(jobs, &[receipt]).await?;
///     tx.commit().await?;
///     Ok(())
/// }
/// ```
#[async_trait]
impl Enlist<InSqlite> for Transaction<'_, Sqlite> {
    async fn insert_in(
        &mut self,
        store: &dyn JobStore,
        submissions: &[Submission],
    ) -> StoreResult<Vec<Inserted>> {
        (**self).insert_in(store, submissions).await
    }
}
