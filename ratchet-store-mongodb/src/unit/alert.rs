//! Alerts about dead letters: recorded once per job and window, notified once per kind of error and window.

use bson::{DateTime, Document, doc};
use ratchet_api::{Alerted, NewDlqAlert, StoreResult};
use serde::{Deserialize, Serialize};

use super::Unit;
use crate::clock::instant;
use crate::codec::{AlertDoc, date, uuid};
use crate::error::During;

/// The last notification about a kind of error, and the number of alerts since.
#[derive(Serialize, Deserialize)]
struct GroupDoc {
    #[serde(rename = "_id")]
    fingerprint: String,
    told_at: DateTime,
    count: i64,
}

impl crate::codec::Salvage for GroupDoc {}

impl Unit<'_> {
    pub(crate) async fn record_alerts(&mut self, alerts: &[NewDlqAlert]) -> StoreResult<Vec<Alerted>> {
        let mut answers = Vec::with_capacity(alerts.len());
        for alert in alerts {
            answers.push(self.record_alert(alert).await?);
        }
        Ok(answers)
    }

    async fn record_alert(&mut self, alert: &NewDlqAlert) -> StoreResult<Alerted> {
        let c = self.collections();
        let twin = doc! {
            "job": uuid(alert.job), "error_hash": &alert.error_hash,
            "at": { "$gt": date(self.now - alert.window) },
        };
        let seen = !self.read::<AlertDoc>(&c.alerts, twin).await?.is_empty();
        let id = doc! { "_id": alert.fingerprint.as_str() };
        let stored = self.read::<GroupDoc>(&c.alert_groups, id.clone()).await?.pop().map(|held| held.doc);
        let count = stored.as_ref().map_or(0, |group| group.count);
        if seen {
            return Ok(Alerted { recorded: false, notify: false, count: count.unsigned_abs() });
        }
        let quiet = |group: &GroupDoc| self.now.since(instant(group.told_at)) < alert.window;
        let notify = !stored.as_ref().is_some_and(quiet);
        let count = if notify { 1 } else { count.saturating_add(1) };
        let mut group = doc! { "count": count };
        if notify {
            group.insert("told_at", date(self.now));
        }
        self.upsert(&c.alert_groups, id, doc! { "$set": group }).await?;
        let record = AlertDoc {
            job: uuid(alert.job),
            error_hash: alert.error_hash.clone(),
            fingerprint: alert.fingerprint.as_str().to_owned(),
            at: date(self.now),
        };
        let record: Document = bson::serialize_to_document(&record).during(self.op)?;
        self.insert_documents(&c.alerts, vec![record]).await?;
        Ok(Alerted { recorded: true, notify, count: count.unsigned_abs() })
    }

    async fn upsert(
        &mut self,
        to: &crate::collections::Raw,
        id: Document,
        change: Document,
    ) -> StoreResult<()> {
        to.update_one(id, change).upsert(true).session(&mut *self.session).await.during(self.op)?;
        Ok(())
    }
}
