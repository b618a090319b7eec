//! Transactions whose process was killed or frozen in the middle. What they have written stays locked until the server gives
//! them up by itself, after a minute or more (`transactionLifetimeLimitSeconds`), and everybody else waits for it.

use std::time::Duration;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::options::{DatabaseOptions, DriverInfo, ReadConcern};
use ratchet_api::StoreResult;

use crate::client::{MongoStore, primary};
use crate::error::During;

/// Between two commands of a unit there is nothing to wait for.
const IDLE: Duration = Duration::from_secs(5);

/// By this the server knows which connections are a store's own.
const NAME: &str = "ratchet";

/// What a store's own connections say of themselves.
pub(crate) fn driver_info() -> DriverInfo {
    DriverInfo::builder().name(NAME).build()
}

impl MongoStore {
    /// Ends units that have sent nothing for a while. One whose process lives after all is run again, as after any conflict.
    pub(crate) async fn end_abandoned(&self, op: &'static str) {
        match self.try_end_abandoned(op).await {
            Ok(0) => {}
            Ok(ended) => {
                tracing::warn!(op, ended, "abandoned transactions aborted: their processes do not go on");
            }
            Err(error) => tracing::debug!(op, %error, "abandoned transactions cannot be looked for"),
        }
    }

    async fn try_end_abandoned(&self, op: &'static str) -> StoreResult<usize> {
        let options = DatabaseOptions::builder()
            .read_concern(ReadConcern::local())
            .selection_criteria(primary())
            .build();
        let admin = self.client.database_with_options("admin", options);
        let idle = i64::try_from(IDLE.as_micros()).unwrap_or(i64::MAX);
        let pipeline = [
            doc! { "$currentOp": { "allUsers": false, "idleConnections": false, "idleSessions": true } },
            doc! { "$match": {
                "type": "idleSession", "clientMetadata.driver.name": { "$regex": format!(r"\|{NAME}$") },
                // A user's transaction on the same connections reads otherwise, unless it asks for this.
                "transaction.parameters.readConcern.level": "snapshot",
                "transaction.timeInactiveMicros": { "$gt": idle },
            } },
            doc! { "$project": { "_id": 0, "id": "$lsid.id" } },
        ];
        let abandoned: Vec<Document> =
            admin.aggregate(pipeline).await.during(op)?.try_collect().await.during(op)?;
        if !abandoned.is_empty() {
            admin.run_command(doc! { "killSessions": &abandoned }).await.during(op)?;
        }
        Ok(abandoned.len())
    }
}
