use std::any::Any;

use async_trait::async_trait;
use ratchet_api::store::StoreInfo;
use ratchet_api::{Limits, StoreResult, Timestamp};

use crate::MongoStore;

#[async_trait]
impl StoreInfo for MongoStore {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    async fn database_time(&self) -> StoreResult<Timestamp> {
        self.now("database_time").await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
