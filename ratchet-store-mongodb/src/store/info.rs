use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_api::spi::ClusterCoordinator;
use ratchet_api::store::StoreInfo;
use ratchet_api::{StoreResult, Timestamp};

use crate::MongoStore;
use crate::wakeup::MongoCoordinator;

#[async_trait]
impl StoreInfo for MongoStore {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    async fn database_time(&self) -> StoreResult<Timestamp> {
        self.now("database_time").await
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        if !self.wakeups {
            return None;
        }
        Some(Arc::new(MongoCoordinator::new(self.notices.clone())))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
