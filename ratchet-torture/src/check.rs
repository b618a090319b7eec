//! The invariants that must hold after all faults. Pure: the evidence in, the violations out.
//!
//! The numbers are those of the invariants in `docs/torture.md`.

use std::collections::{HashMap, HashSet};
use std::fmt;

use ratchet_api::{JobId, JobStatus};

use crate::ledger::Run;
use crate::witness::{Change, Hold, Recorded};

/// The evidence of a run, from every source.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// From the submitter: accepted jobs.
    pub(crate) accepted: Vec<JobId>,
    /// From the workers: bodies that ran.
    pub(crate) runs: Vec<Run>,
    /// From the triggers or change stream: changes of queue rows.
    pub(crate) changes: Vec<Change>,
    /// From the store: recorded outcomes.
    pub(crate) recorded: Vec<Recorded>,
    /// From the store: the final states of the jobs.
    pub(crate) ends: HashMap<JobId, End>,
    /// From the submitter: jobs that end the process that runs them.
    pub(crate) guilty: HashSet<JobId>,
}

/// The final state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) status: JobStatus,
    pub(crate) attempts: u32,
    pub(crate) crashes: u32,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) job: JobId,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: job {}: {}", self.invariant, self.job, self.text)
    }
}

/// Finds every violation.
pub(crate) fn check(evidence: &Evidence, crash_limit: u32) -> Vec<Violation> {
    let stories = stories(evidence);
    let mut found = Vec::new();
    for (job, story) in &stories {
        let mut wrong = |invariant, text: String| found.push(Violation { invariant, job: *job, text });
        story.nothing_is_lost(&mut wrong);
        story.one_outcome(&mut wrong);
        story.one_owner_at_a_time(&mut wrong);
        story.legal_moves(&mut wrong);
        story.not_early(&mut wrong);
        story.counted(crash_limit, &mut wrong);
        story.blamed(evidence.guilty.contains(job), &mut wrong);
    }
    found.sort_by_key(|violation| (violation.invariant, violation.job));
    found
}

/// Finds jobs that count as crashes of their node although no worker was killed or frozen (I4).
pub(crate) fn nobody_died(evidence: &Evidence) -> Vec<Violation> {
    let crashed = evidence.ends.iter().filter(|(_, end)| end.crashes > 0);
    let text = |end: &End| format!("its node was held for dead, and none died: {end:?}");
    crashed.map(|(job, end)| Violation { invariant: "I4", job: *job, text: text(end) }).collect()
}

/// The evidence about one job.
#[derive(Default)]
struct Story<'e> {
    accepted: bool,
    end: Option<End>,
    runs: Vec<&'e Run>,
    changes: Vec<&'e Change>,
    recorded: Vec<&'e Recorded>,
}

fn stories(evidence: &Evidence) -> HashMap<JobId, Story<'_>> {
    let mut stories: HashMap<JobId, Story<'_>> = HashMap::new();
    for job in &evidence.accepted {
        stories.entry(*job).or_default().accepted = true;
    }
    for run in &evidence.runs {
        stories.entry(run.job).or_default().runs.push(run);
    }
    for change in &evidence.changes {
        stories.entry(change.job).or_default().changes.push(change);
    }
    for recorded in &evidence.recorded {
        stories.entry(recorded.job).or_default().recorded.push(recorded);
    }
    for (job, end) in &evidence.ends {
        stories.entry(*job).or_default().end = Some(*end);
    }
    stories
}

type Report<'r> = &'r mut dyn FnMut(&'static str, String);

impl Story<'_> {
    /// Every claim or takeover: the new owner of the job and its fence.
    fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.changes.iter().filter_map(|change| change.new.as_ref()).filter(|hold| hold.owner.is_some())
    }

    /// I1, I2.
    fn nothing_is_lost(&self, wrong: Report<'_>) {
        match self.end {
            None if self.accepted => wrong("I1", "it was accepted and is gone".to_owned()),
            Some(end) if !end.status.is_terminal() => wrong("I1", format!("it is stuck: {end:?}")),
            Some(end) if end.status != JobStatus::Canceled && end.crashes == 0 && self.runs.is_empty() => {
                wrong("I2", format!("it never ran: {end:?}"));
            }
            _ => {}
        }
    }

    /// I3: one outcome ends a job, under the last fence, and each outcome is by the owner of the job at its fence.
    fn one_outcome(&self, wrong: Report<'_>) {
        let held: HashSet<(i64, &str)> =
            self.holds().filter_map(|hold| Some((hold.fence, hold.owner.as_deref()?))).collect();
        for recorded in &self.recorded {
            if !held.contains(&(recorded.fence, recorded.owner.as_str())) {
                wrong("I3", format!("an outcome of somebody who did not hold it: {recorded:?}"));
            }
        }
        let Some(End { status: JobStatus::Succeeded, .. }) = self.end else { return };
        let last = self.holds().map(|hold| hold.fence).max();
        let successes: Vec<i64> =
            self.recorded.iter().filter(|recorded| recorded.result == "SUCCEEDED").map(|r| r.fence).collect();
        if successes.len() != 1 || successes.first().copied() != last {
            wrong("I3", format!("successes under the fences {successes:?}, the last one was {last:?}"));
        }
    }

    /// I4: a job is taken from another owner only after that owner's lease.
    fn one_owner_at_a_time(&self, wrong: Report<'_>) {
        for change in &self.changes {
            let owner = |hold: &Option<Hold>| hold.as_ref().and_then(|hold| hold.owner.clone());
            let (Some(old), Some(new)) = (owner(&change.old), owner(&change.new)) else { continue };
            if old != new && change.old_lease.is_some_and(|lease| lease > change.at) {
                wrong("I4", format!("{new} took it from {old}, who was alive: {change:?}"));
            }
        }
    }

    /// No job is claimed before it is due, by the clock of the database.
    fn not_early(&self, wrong: Report<'_>) {
        for change in &self.changes {
            let claimed = change.new.as_ref().is_some_and(|hold| hold.owner.is_some())
                && change.old.as_ref().is_some_and(|hold| hold.owner.is_none());
            if claimed && change.due.is_some_and(|due| due > change.at) {
                wrong("early", format!("it was claimed before it was due: {change:?}"));
            }
        }
    }

    /// I5: every transition is in the table of legal ones.
    fn legal_moves(&self, wrong: Report<'_>) {
        let status =
            |hold: &Option<Hold>| hold.as_ref().and_then(|hold| hold.status.parse::<JobStatus>().ok());
        for change in &self.changes {
            let legal = match (status(&change.old), status(&change.new)) {
                (None, Some(new)) => new == JobStatus::Pending,
                // A takeover, or a new due time.
                (Some(old), Some(new)) => old == new || old.can_move(new),
                (Some(old), None) => self.end.is_none_or(|end| old.can_move(end.status)),
                (None, None) => false,
            };
            if !legal {
                wrong("I5", format!("a move that is not in the table, to {:?}: {change:?}", self.end));
            }
        }
    }

    /// I11: a claim runs at most once, nothing runs without a claim, and failures and crashes are counted correctly.
    fn counted(&self, crash_limit: u32, wrong: Report<'_>) {
        let fences: HashSet<i64> = self.holds().map(|hold| hold.fence).collect();
        let mut seen = HashSet::new();
        for run in &self.runs {
            if !fences.contains(&run.fence) {
                wrong("I11", format!("it ran under a fence that nobody was given: {run:?}"));
            }
            if !seen.insert(run.fence) {
                wrong("I11", format!("it ran twice under one fence: {run:?}"));
            }
        }
        let Some(end) = self.end else { return };
        let count = |result: &str| self.recorded.iter().filter(|r| r.result == result).count();
        // The end of a job that crashed its nodes is not a failed attempt.
        let buried = usize::from(end.status == JobStatus::Failed && end.attempts == 0);
        if end.attempts as usize != count("FAILED") - buried.min(count("FAILED")) {
            wrong("I11", format!("{} failures recorded: {end:?}", count("FAILED")));
        }
        if end.crashes > crash_limit + 1 {
            wrong("I11", format!("more crashes than allowed: {end:?}"));
        }
    }

    /// Exactly the jobs that ended their processes are dead letters.
    fn blamed(&self, guilty: bool, wrong: Report<'_>) {
        match self.end {
            Some(end) if guilty && end.status != JobStatus::Failed => {
                wrong("blame", format!("it ended its nodes, and is no dead letter: {end:?}"));
            }
            Some(end) if !guilty && end.status == JobStatus::Failed => {
                wrong("blame", format!("it is a dead letter, and harmed nobody: {end:?}"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
