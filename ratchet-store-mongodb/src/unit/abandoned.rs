//! Abandoned transactions: their process was killed or frozen half-way. Their writes stay locked until the server
//! aborts them, after a minute or more (`transactionLifetimeLimitSeconds`), and all other writers wait.

use std::time::Duration;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::options::{DatabaseOptions, DriverInfo, ReadConcern};
use ratchet_api::StoreResult;

use crate::client::{MongoStore, primary};
use crate::error::During;

/// The idle time after which a transaction counts as abandoned: a unit has nothing to wait for between two commands.
const IDLE: Duration = Duration::from_secs(5);

/// The driver name by which the server recognizes a store's own connections.
const NAME: &str = "ratchet";

/// The client metadata of a store's own connections.
pub(crate) fn driver_info() -> DriverInfo {
    DriverInfo::builder().name(NAME).build()
}

impl MongoStore {
    /// Aborts units that have been idle for a while. If the process is still alive, it runs the unit again.
    pub(crate) async fn end_abandoned(&self, op: &'static str) {
        match self.try_end_abandoned(op).await {
            Ok(0) => {}
            Ok(ended) => {
                tracing::warn!(op, ended, "abandoned transactions aborted: idle for too long");
            }
            Err(error) => {
                tracing::debug!(op, %error, "abandoned transactions not searched for: the query failed");
            }
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
                // A user's transaction on the same connections has another read concern, unless it asks for this one.
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
