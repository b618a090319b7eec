//! Submitting inside a transaction of the user.

use async_trait::async_trait;

use crate::store::JobStore;
use crate::{Inserted, StoreResult, Submission};

/// A driver's transaction in which jobs can be submitted.
///
/// A store crate implements it for its driver's transaction, with an empty marker type `M` of its own: neither the
/// trait nor the transaction would be local to that crate otherwise.
///
/// The jobs exist once the user commits, and never if they roll back. No call raises a database error that would end
/// the user's transaction.
#[async_trait]
pub trait Enlist<M>: Send {
    /// Stores submissions in this transaction, by the rules of
    /// [`JobBulkStore::insert`](crate::store::JobBulkStore::insert).
    ///
    /// `store` must be of the same kind as the transaction; otherwise the answer is an error of kind `Unsupported`.
    async fn insert_in(
        &mut self,
        store: &dyn JobStore,
        submissions: &[Submission],
    ) -> StoreResult<Vec<Inserted>>;
}
