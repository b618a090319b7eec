//! Outcomes with all their consequences.
//!
//! Plain outcomes, the usual case, are recorded by one statement that is a transaction of its own. The rest (effects,
//! edges, batches, requested cancels, lost leases) is settled in one transaction: lock, decide, write, cascade.

mod settlement;
mod successes;

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use ratchet_api::store::{CancelVerdict, JobTerminalStore, Target};
use ratchet_api::{
    EdgeState, Effect, End, Inserted, JobId, JobStatus, Outcome, Owner, Recorded, Sanitized, StoreErrorKind,
    StoreResult, Submission, Timestamp, Verdict,
};

use crate::store::SqlStore;
use crate::store::cascade::{Cascade, Decision, LedTo, edges_from};
use crate::store::info::present;
use crate::store::insert::insert_all;
use crate::store::lock_rows::{LockedJob, RowState, lock_rows};
use crate::store::session::Session;
use settlement::{Settlement, ended_as, ran_millis, recorded_before};
use successes::Successes;

const OP: &str = "commit";

#[async_trait]
impl JobTerminalStore for SqlStore {
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        let mut open = Open::new(outcomes);
        let plain = open.plain();
        if !plain.is_empty() {
            match self.write(OP, |session| Box::pin(commit_plain(session, owner, &plain))).await {
                Ok(verdicts) => open.settle(verdicts),
                // A fence that was set back by hand met a history row of its own job. The transaction below handles
                // that; handling it here would cost every outcome.
                Err(error) if error.kind() == StoreErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        while let Some(round) = open.round() {
            let work = self.transaction(OP, |session| Box::pin(commit_rest(session, owner, &round)));
            open.settle(work.await?);
        }
        Ok(open.verdicts())
    }

    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        crate::store::control::cancel(self, jobs, reason).await
    }
}

/// Records outcomes inside an open transaction.
pub(super) async fn commit_all(
    session: &mut Session<'_>,
    owner: &Owner,
    outcomes: &[Outcome],
) -> StoreResult<Vec<Verdict>> {
    let mut open = Open::new(outcomes);
    let plain = open.plain();
    if !plain.is_empty() {
        open.settle(commit_plain(session, owner, &plain).await?);
    }
    while let Some(round) = open.round() {
        open.settle(commit_rest(session, owner, &round).await?);
    }
    Ok(open.verdicts())
}

/// An outcome with its position in the call.
type Placed<'a> = (usize, &'a Outcome);

/// The outcomes of a call, and the verdicts so far.
struct Open<'a> {
    outcomes: &'a [Outcome],
    verdicts: Vec<Option<Verdict>>,
}

impl<'a> Open<'a> {
    fn new(outcomes: &'a [Outcome]) -> Self {
        Self { outcomes, verdicts: vec![None; outcomes.len()] }
    }

    /// The outcomes that may be plain: without effects, and the only one of their job.
    fn plain(&self) -> Vec<Placed<'a>> {
        let mut seen = HashSet::new();
        let is_plain = |(_, outcome): &Placed<'_>| seen.insert(outcome.id) && outcome.effects.is_empty();
        self.outcomes.iter().enumerate().filter(is_plain).collect()
    }

    /// The next outcomes to settle. Two outcomes of one job are settled one after the other; each round takes the first
    /// that is left.
    fn round(&self) -> Option<Vec<Placed<'a>>> {
        let mut seen = HashSet::new();
        let is_next =
            |(place, outcome): &Placed<'_>| self.verdicts[*place].is_none() && seen.insert(outcome.id);
        let round: Vec<Placed<'a>> = self.outcomes.iter().enumerate().filter(is_next).collect();
        (!round.is_empty()).then_some(round)
    }

    fn settle(&mut self, verdicts: Vec<(usize, Verdict)>) {
        for (place, verdict) in verdicts {
            self.verdicts[place] = Some(verdict);
        }
    }

    /// One verdict for each outcome, in order, once every round is settled.
    fn verdicts(self) -> Vec<Verdict> {
        self.verdicts.into_iter().flatten().collect()
    }
}

/// Records the outcomes that prove to be plain; the others have no verdict yet.
async fn commit_plain(
    session: &mut Session<'_>,
    owner: &Owner,
    outcomes: &[Placed<'_>],
) -> StoreResult<Vec<(usize, Verdict)>> {
    if let Some(successes) = Successes::of(outcomes.iter().map(|(_, outcome)| *outcome)) {
        let recorded = successes.record(session, owner).await?;
        let is_recorded = |id| recorded.as_ref().is_none_or(|recorded| recorded.contains(id));
        let recorded = outcomes.iter().filter(|(_, outcome)| is_recorded(&outcome.id));
        return Ok(recorded.map(|(place, _)| (*place, Verdict::Recorded(Recorded::default()))).collect());
    }
    let mut settlement = Settlement::default();
    outcomes.iter().for_each(|(_, outcome)| settlement.push(outcome));
    let recorded = settlement.record(session, owner, None, false).await?;
    let verdict = |(place, outcome): &Placed<'_>| {
        let mut led_to = Recorded::default();
        led_to.next_due = *recorded.get(&outcome.id)?;
        Some((*place, Verdict::Recorded(led_to)))
    };
    Ok(outcomes.iter().filter_map(verdict).collect())
}

/// The decision about an outcome.
enum Ruling {
    /// Record it.
    Record,
    /// Record CANCELED instead.
    Cancel,
    /// Record nothing and return this verdict.
    Answer(Verdict),
}

/// Settles outcomes of different jobs, with one verdict for each.
async fn commit_rest(
    session: &mut Session<'_>,
    owner: &Owner,
    round: &[Placed<'_>],
) -> StoreResult<Vec<(usize, Verdict)>> {
    let outcomes: Vec<&Outcome> = round.iter().map(|(_, outcome)| *outcome).collect();
    let ids: Vec<JobId> = outcomes.iter().map(|outcome| outcome.id).collect();
    let held = lock_rows(session, &ids).await?;
    let now = present(session).await?;
    let rulings = rule(session, owner, &outcomes, &held).await?;

    let mut settlement = Settlement::default();
    for (outcome, ruling) in outcomes.iter().zip(&rulings) {
        match ruling {
            Ruling::Record => settlement.push(outcome),
            Ruling::Cancel => settlement.push_canceled(outcome),
            Ruling::Answer(_) => {}
        }
    }
    let due = match settlement.is_empty() {
        true => HashMap::new(),
        false => settlement.record(session, owner, Some(now), true).await?,
    };
    let led_to = follow(session, &outcomes, &rulings, &held, now).await?;

    let mut submitted = submit(session, &outcomes, &rulings).await?.into_iter();
    let verdict = |((outcome, ruling), led_to): ((&&Outcome, Ruling), LedTo)| match ruling {
        Ruling::Answer(verdict) => verdict,
        Ruling::Cancel => Verdict::CanceledInstead,
        Ruling::Record => {
            let mut recorded = Recorded::default();
            recorded.next_due = due.get(&outcome.id).copied().flatten();
            recorded.batch = led_to.batch;
            recorded.released = led_to.released;
            recorded.canceled = led_to.canceled;
            recorded.submitted = submitted.by_ref().take(submissions(outcome).count()).collect();
            Verdict::Recorded(recorded)
        }
    };
    let verdicts = outcomes.iter().zip(rulings).zip(led_to).map(verdict);
    Ok(round.iter().map(|(place, _)| *place).zip(verdicts).collect())
}

/// Decides what to do about each outcome.
async fn rule(
    session: &mut Session<'_>,
    owner: &Owner,
    outcomes: &[&Outcome],
    held: &HashMap<JobId, LockedJob>,
) -> StoreResult<Vec<Ruling>> {
    let mine = |outcome: &Outcome| {
        let LockedJob { fence, place: RowState::Queue(queued), .. } = held.get(&outcome.id)? else {
            return None;
        };
        let running = queued.status == JobStatus::Running && queued.picked_by.as_ref() == Some(owner);
        (running && *fence == outcome.fence).then_some(queued)
    };
    let lost: Vec<_> =
        outcomes.iter().filter(|o| mine(o).is_none()).map(|outcome| (outcome.id, outcome.fence)).collect();
    let recorded = recorded_before(session, owner, &lost).await?;

    let mut rulings = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        rulings.push(match mine(outcome) {
            None if recorded.contains(&(outcome.id, outcome.fence)) => {
                Ruling::Answer(Verdict::AlreadyRecorded)
            }
            None => Ruling::Answer(Verdict::LeaseLost),
            Some(queued) if queued.cancel_requested => Ruling::Cancel,
            Some(queued) if decides(&outcome.end) && queued.edge_count > outcome.edges_seen => {
                let edges = edges_from(session, [&outcome.id]).await?;
                Ruling::Answer(Verdict::EdgesChanged { edges, edge_count: queued.edge_count })
            }
            Some(_) => Ruling::Record,
        });
    }
    Ok(rulings)
}

/// Whether the caller had to decide the job's edges: a canceled job refuses them all, one that waits again decides
/// none.
fn decides(end: &End) -> bool {
    matches!(end, End::Succeeded { .. } | End::DeadLetter { .. })
}

/// Decides the edges of the jobs that ended and counts them in their batches.
async fn follow(
    session: &mut Session<'_>,
    outcomes: &[&Outcome],
    rulings: &[Ruling],
    held: &HashMap<JobId, LockedJob>,
    now: Timestamp,
) -> StoreResult<Vec<LedTo>> {
    let mut follow = Cascade::new(now, outcomes.len());
    let mut ended: HashMap<JobId, (JobStatus, usize)> = HashMap::new();
    let mut decisions = Vec::new();
    for (cause, (outcome, ruling)) in outcomes.iter().zip(rulings).enumerate() {
        let status = match ruling {
            Ruling::Record => ended_as(&outcome.end),
            Ruling::Cancel => Some(JobStatus::Canceled),
            Ruling::Answer(_) => None,
        };
        let (Some(status), Some(job)) = (status, held.get(&outcome.id)) else { continue };
        if let Some(batch) = job.batch {
            follow.count_outcome(cause, batch, status, ran_millis(outcome));
        }
        if !matches!(&job.place, RowState::Queue(queued) if queued.edge_count > 0) {
            continue;
        }
        ended.insert(outcome.id, (status, cause));
        if matches!(ruling, Ruling::Record) {
            decisions.extend(edge_effects(outcome, cause));
        }
    }
    follow.decide_open(session, &ended, decisions).await?;
    follow.finish(session).await
}

fn edge_effects(outcome: &Outcome, cause: usize) -> impl Iterator<Item = Decision> {
    let decide = move |child: JobId, state| Some(Decision { parent: outcome.id, child, state, cause });
    outcome.effects.iter().filter_map(move |effect| match effect {
        Effect::Satisfy(child) => decide(*child, EdgeState::Satisfied),
        Effect::Refuse(child) => decide(*child, EdgeState::Refused),
        Effect::Submit(_) => None,
    })
}

/// Stores the submissions of the recorded outcomes, all in one go.
async fn submit(
    session: &mut Session<'_>,
    outcomes: &[&Outcome],
    rulings: &[Ruling],
) -> StoreResult<Vec<Inserted>> {
    let recorded = outcomes.iter().zip(rulings).filter(|(_, ruling)| matches!(ruling, Ruling::Record));
    let all: Vec<&Submission> = recorded.flat_map(|(outcome, _)| submissions(outcome)).collect();
    insert_all(session, &all).await
}

fn submissions(outcome: &Outcome) -> impl Iterator<Item = &Submission> {
    outcome.effects.iter().filter_map(|effect| match effect {
        Effect::Submit(submission) => Some(submission.as_ref()),
        Effect::Satisfy(_) | Effect::Refuse(_) => None,
    })
}
