//! Information about the store.

use std::any::Any;

use async_trait::async_trait;
use ratchet_api::store::StoreInfo;
use ratchet_api::{StoreResult, Timestamp};

use super::SqlStore;
use crate::store::row::Cells;
use crate::store::session::Session;

#[async_trait]
impl StoreInfo for SqlStore {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn database_time(&self) -> StoreResult<Timestamp> {
        self.read("database_time", |session| Box::pin(present(session))).await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The present time by the clock that decides, for a transaction that needs one instant in several statements.
pub(crate) async fn present(session: &mut Session<'_>) -> StoreResult<Timestamp> {
    let row = session.sql().now.bind().arg("now", session.store().now()).row(session).await?;
    Cells(&row).must(session.op(), "now")
}
