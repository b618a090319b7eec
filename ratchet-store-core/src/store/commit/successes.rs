//! A call that records nothing but successes, the usual one: it needs fewer columns than others.

use std::collections::HashSet;

use ratchet_api::{End, JobId, Outcome, Owner, StoreResult};

use super::settlement::{ran_millis, run_millis};
use crate::store::row::Cells;
use crate::store::session::Session;

/// The arrays that `commit/succeed.sql` takes.
#[derive(Default)]
pub(crate) struct Successes<'a> {
    ids: Vec<JobId>,
    fences: Vec<i64>,
    started_ago: Vec<Option<i64>>,
    ran_for: Vec<Option<i64>>,
    results: Vec<Option<&'a str>>,
}

impl<'a> Successes<'a> {
    /// Collects the outcomes; `None` if one of them is not a success.
    pub(crate) fn of(outcomes: impl Iterator<Item = &'a Outcome>) -> Option<Self> {
        let succeeded = |outcome: &'a Outcome| match &outcome.end {
            End::Succeeded { result } => Some((outcome, result.as_ref().map(|result| result.as_str()))),
            _ => None,
        };
        let mut outcomes: Vec<_> = outcomes.map(succeeded).collect::<Option<_>>()?;
        // Sorted by id: two calls that wait for each other's rows wait in one direction only, so they cannot deadlock.
        outcomes.sort_unstable_by_key(|(outcome, _)| outcome.id);
        let mut columns = Self::default();
        for (outcome, result) in outcomes {
            columns.ids.push(outcome.id);
            columns.fences.push(outcome.fence.version());
            columns.started_ago.push(outcome.run.map(|run| run_millis(run.started_ago)));
            columns.ran_for.push(outcome.run.map(|_| ran_millis(outcome)));
            columns.results.push(result);
        }
        Some(columns)
    }

    /// Runs the statement; returns which jobs were recorded, or `None` if all of them were. None of them is due again.
    pub(crate) async fn record(
        &self,
        session: &mut Session<'_>,
        owner: &Owner,
    ) -> StoreResult<Option<HashSet<JobId>>> {
        let succeed = session.sql().succeed.bind();
        let row = succeed
            .arg("now", session.store().now())
            .arg("job_ids", &self.ids)
            .arg("fences", &self.fences)
            .arg("started_ago", &self.started_ago)
            .arg("ran_for", &self.ran_for)
            .arg("results", &self.results)
            .arg("owner", owner.as_str())
            .row(session)
            .await?;
        let recorded: Option<Vec<JobId>> = Cells(&row).must_opt(session.op(), "job_ids")?;
        Ok(recorded.map(|ids| ids.into_iter().collect()))
    }
}
