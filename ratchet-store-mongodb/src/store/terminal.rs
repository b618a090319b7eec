use async_trait::async_trait;
use ratchet_api::store::{CancelVerdict, JobTerminalStore, Target};
use ratchet_api::{End, Outcome, Owner, Sanitized, StoreResult, Verdict};

use crate::MongoStore;
use crate::unit::in_unit;

/// The most outcomes in one command, and the most bytes of text: the server takes 16 MB.
const CHUNK: usize = 1_000;
const CHUNK_BYTES: usize = 8 << 20;
/// The most outcomes in one transaction.
const UNIT: usize = 200;

#[async_trait]
impl JobTerminalStore for MongoStore {
    /// Plain outcomes are single-document updates in one command; a unit of work handles the rest.
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        let mut verdicts = Vec::with_capacity(outcomes.len());
        let mut rest = outcomes;
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(fitting(rest));
            verdicts.extend(self.commit_chunk(owner, chunk).await?);
            rest = later;
        }
        Ok(verdicts)
    }

    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        in_unit!(self, "cancel", |unit| unit.cancel(jobs, reason))
    }
}

/// The number of leading outcomes that fit into one command; at least one.
fn fitting(outcomes: &[Outcome]) -> usize {
    let mut bytes = 0;
    let fits = |outcome: &&Outcome| {
        bytes += text_bytes(outcome);
        bytes <= CHUNK_BYTES
    };
    outcomes.iter().take(CHUNK).take_while(fits).count().max(1)
}

/// The bytes of an outcome's result and error message, the two texts that can be long.
fn text_bytes(outcome: &Outcome) -> usize {
    let result = match &outcome.end {
        End::Succeeded { result: Some(result) } => result.as_str().len(),
        _ => 0,
    };
    result + outcome.error().map_or(0, |error| error.message.as_str().len())
}

impl MongoStore {
    async fn commit_chunk(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        let mut verdicts = self.commit_plain(owner, outcomes).await?;
        let open: Vec<_> =
            verdicts.iter().enumerate().filter(|(_, verdict)| verdict.is_none()).map(|(at, _)| at).collect();
        for open in open.chunks(UNIT) {
            let rest: Vec<_> = open.iter().map(|at| &outcomes[*at]).collect();
            let decided: StoreResult<Vec<Verdict>> =
                in_unit!(self, "commit", |unit| unit.commit(owner, &rest));
            for (at, verdict) in open.iter().zip(decided?) {
                verdicts[*at] = Some(verdict);
            }
        }
        Ok(verdicts.into_iter().flatten().collect())
    }
}
