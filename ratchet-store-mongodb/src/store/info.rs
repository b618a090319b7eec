use std::any::Any;

use async_trait::async_trait;
use ratchet_api::store::StoreInfo;
use ratchet_api::{StoreResult, Timestamp};

use crate::MongoStore;

#[async_trait]
impl StoreInfo for MongoStore {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    async fn database_time(&self) -> StoreResult<Timestamp> {
        self.now("database_time").await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
