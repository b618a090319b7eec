use async_trait::async_trait;
use ratchet_api::store::{CancelVerdict, JobTerminalStore, Target};
use ratchet_api::{Outcome, Owner, Sanitized, StoreResult, Verdict};

use crate::MongoStore;
use crate::unit::in_unit;

const CHUNK: usize = 200;

#[async_trait]
impl JobTerminalStore for MongoStore {
    /// Plain outcomes are updates of single documents in one command; what that did not record is a unit of work.
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        let mut verdicts = Vec::with_capacity(outcomes.len());
        for chunk in outcomes.chunks(CHUNK) {
            verdicts.extend(self.commit_chunk(owner, chunk).await?);
        }
        Ok(verdicts)
    }

    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        in_unit!(self, "cancel", |unit| unit.cancel(jobs, reason))
    }
}

impl MongoStore {
    async fn commit_chunk(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        let mut verdicts = self.commit_plain(owner, outcomes).await?;
        let open: Vec<_> =
            verdicts.iter().enumerate().filter(|(_, verdict)| verdict.is_none()).map(|(at, _)| at).collect();
        if !open.is_empty() {
            let rest: Vec<_> = open.iter().map(|at| &outcomes[*at]).collect();
            let decided: StoreResult<Vec<Verdict>> =
                in_unit!(self, "commit", |unit| unit.commit(owner, &rest));
            for (at, verdict) in open.into_iter().zip(decided?) {
                verdicts[at] = Some(verdict);
            }
        }
        Ok(verdicts.into_iter().flatten().collect())
    }
}
