use async_trait::async_trait;
use ratchet_api::StoreResult;
use ratchet_api::store::{JobRetryStore, RetryVerdict, Target};

use crate::MongoStore;
use crate::unit::in_unit;

#[async_trait]
impl JobRetryStore for MongoStore {
    async fn retry(&self, jobs: &[Target]) -> StoreResult<Vec<RetryVerdict>> {
        in_unit!(self, "retry", |unit| unit.retry(jobs))
    }
}
