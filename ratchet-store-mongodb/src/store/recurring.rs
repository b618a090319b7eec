use async_trait::async_trait;
use bson::{RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::FindOptions;
use ratchet_api::store::{NewRecurring, RecurringStore, SavedRecurring};
use ratchet_api::{Job, JobId, StoreError, StoreResult};

use crate::MongoStore;
use crate::codec::{JobDoc, decode, has_job_id, id_of};
use crate::error::During;
use crate::unit::in_unit;

#[async_trait]
impl RecurringStore for MongoStore {
    async fn save_recurring(&self, recurring: &NewRecurring) -> StoreResult<SavedRecurring> {
        const OP: &str = "save_recurring";
        let Some(key) = recurring.spec.business_key.as_ref() else {
            return Err(StoreError::invalid(
                OP,
                "a schedule is known by its business key, and this has none",
            ));
        };
        in_unit!(self, OP, |unit| unit.save_recurring(key.as_str(), recurring))
    }

    async fn due_recurring(&self, limit: usize) -> StoreResult<Vec<Job>> {
        const OP: &str = "due_recurring";
        if limit == 0 {
            return Ok(Vec::new());
        }
        // A comparison with `$expr` also matches missing fields, so existence is checked too.
        let mut due = doc! { "status": "PENDING", "recurrence.next_fire": { "$exists": true } };
        due.extend(has_job_id());
        match self.present().known() {
            Some(now) => {
                due.insert("recurrence.next_fire", doc! { "$lte": crate::codec::date(now) });
            }
            None => due.extend(self.present().reached("recurrence.next_fire")),
        }
        let earliest = FindOptions::builder()
            .sort(doc! { "recurrence.next_fire": 1, "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        loop {
            let found = self.collections.jobs.find(due.clone()).with_options(earliest.clone());
            let found: Vec<RawDocumentBuf> = found.await.during(OP)?.try_collect().await.during(OP)?;
            let (mut masters, mut corrupt) = (Vec::new(), Vec::new());
            for raw in &found {
                match decode::<JobDoc>(OP, raw).and_then(|master| master.read(OP)) {
                    Ok(master) => masters.push(master),
                    Err(error) => {
                        tracing::error!(%error, "a schedule cannot be read");
                        corrupt.extend(id_of(raw));
                    }
                }
            }
            if corrupt.is_empty() {
                return Ok(masters);
            }
            // Otherwise they would always come before the others.
            self.end_corrupt(OP, &corrupt).await?;
        }
    }
}

impl MongoStore {
    async fn end_corrupt(&self, op: &'static str, schedules: &[JobId]) -> StoreResult<()> {
        for id in schedules {
            in_unit!(self, op, |unit| unit.end_corrupt(*id, "CorruptRow: this schedule cannot be read"))?;
        }
        Ok(())
    }
}
