//! Storing jobs inside a transaction of yours.

use async_trait::async_trait;
use ratchet_api::store::JobStore;
use ratchet_api::{Enlist, Inserted, StoreResult, Submission};
use ratchet_store_core::{Dialect, SqlStore};
use sqlx::{PgConnection, Postgres, Transaction};

use crate::driver::PgLink;

/// Marks this crate's implementations for the types of sqlx.
#[derive(Clone, Copy, Debug)]
pub struct InPostgres;

/// A connection that is inside a transaction.
#[async_trait]
impl Enlist<InPostgres> for PgConnection {
    async fn insert_in(
        &mut self,
        store: &dyn JobStore,
        submissions: &[Submission],
    ) -> StoreResult<Vec<Inserted>> {
        let store = SqlStore::behind(store, Dialect::Postgres)?;
        store.insert_in(Box::new(PgLink::Theirs(self)), submissions).await
    }
}

/// The jobs exist once the transaction is committed, and never if it is rolled back.
///
/// ```no_run
/// use ratchet_api::{Enlist as _, Submission};
/// use ratchet_store_postgres::PostgresStore;
/// use sqlx::{Connection as _, PgConnection};
///
/// async fn place_order(db: &mut PgConnection, jobs: &PostgresStore, receipt: Submission) -> Result<(), Box<dyn std::error::Error>> {
///     let mut tx = db.begin().await?;
///     sqlx::query("INSERT INTO orders DEFAULT VALUES").execute(&mut *tx).await?;
///     tx.insert_in(jobs, &[receipt]).await?;
///     tx.commit().await?;
///     Ok(())
/// }
/// ```
#[async_trait]
impl Enlist<InPostgres> for Transaction<'_, Postgres> {
    async fn insert_in(
        &mut self,
        store: &dyn JobStore,
        submissions: &[Submission],
    ) -> StoreResult<Vec<Inserted>> {
        (**self).insert_in(store, submissions).await
    }
}
