//! The time until the jobs of a killed worker run again, by its parts. Pure.

use crate::ledger::Run;
use crate::witness::{Change, Hold};

/// The parts of the time from the kill of a job's worker to its next run. All clocks are those of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rerun {
    /// Milliseconds from the kill to the next run.
    pub(crate) total: i64,
    /// From the kill until the lease of the killed worker ended.
    pub(crate) lease: i64,
    /// From the end of the lease until another worker took the job over.
    pub(crate) takeover: i64,
    /// From the takeover until the job was back in its queue.
    pub(crate) requeue: i64,
    /// From the requeue until the claim that the run belongs to.
    pub(crate) claim: i64,
    /// From that claim to the body.
    pub(crate) start: i64,
    /// Whether another owner of the job died as well before it ran.
    pub(crate) hit_again: bool,
}

/// Every run that a kill cut short and that was followed by another.
pub(crate) fn reruns(kills: &[(String, i64)], runs: &[Run], changes: &[Change]) -> Vec<Rerun> {
    let mut found = Vec::new();
    for (process, killed) in kills {
        let cut_short = runs.iter().filter(|run| run.process == *process && run.ended.is_none());
        for run in cut_short.filter(|run| run.told.is_none()) {
            let later = runs.iter().filter(|next| next.job == run.job && next.fence > run.fence);
            let Some(next) = later.min_by_key(|next| next.fence) else { continue };
            let changes: Vec<&Change> = changes.iter().filter(|change| change.job == run.job).collect();
            found.push(rerun(*killed, run, next, &changes));
        }
    }
    found
}

/// The parts of the time between two runs of a job.
fn rerun(killed: i64, run: &Run, next: &Run, changes: &[&Change]) -> Rerun {
    let total = next.started - killed;
    let fence = |hold: &Option<Hold>| hold.as_ref().map_or(0, |hold| hold.fence);
    let owned = |hold: &Option<Hold>| hold.as_ref().is_some_and(|hold| hold.owner.is_some());
    let between = changes.iter().filter(|change| fence(&change.old) >= run.fence);
    let between: Vec<_> =
        between.filter(|change| fence(&change.new) <= next.fence && change.new.is_some()).collect();
    let takeovers: Vec<_> =
        between.iter().filter(|change| owned(&change.old) && owned(&change.new)).collect();
    let requeued = between.iter().find(|change| owned(&change.old) && !owned(&change.new));
    let claimed = between.iter().find(|change| fence(&change.new) == next.fence);
    let (Some(taken), Some(requeued), Some(claimed)) = (takeovers.first(), requeued, claimed) else {
        return Rerun { total, ..Rerun::default() };
    };
    let lease_end = taken.old_lease.unwrap_or(taken.at);
    Rerun {
        total,
        lease: lease_end - killed,
        takeover: taken.at - lease_end,
        requeue: requeued.at - taken.at,
        claim: claimed.at - requeued.at,
        start: next.started - claimed.at,
        hit_again: takeovers.len() > 1,
    }
}

/// A percentile of unsorted numbers.
pub(crate) fn percentile(mut numbers: Vec<i64>, percent: usize) -> Option<i64> {
    numbers.sort_unstable();
    numbers.get((numbers.len() * percent / 100).min(numbers.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    use ratchet_api::JobId;

    use super::*;

    fn run(job: JobId, fence: i64, process: &str, started: i64, ended: Option<i64>) -> Run {
        Run { job, fence, process: process.to_owned(), started, told: None, ended }
    }

    /// A change of the owner, from one fence to the next.
    fn change(job: JobId, at: i64, fence: i64, old: Option<&str>, new: Option<&str>) -> Change {
        let hold = |owner: Option<&str>, fence| {
            let status = if owner.is_some() { "RUNNING" } else { "PENDING" };
            Some(Hold { status: status.to_owned(), owner: owner.map(str::to_owned), fence })
        };
        let old_lease = old.map(|_| at - 30);
        Change { job, at, old: hold(old, fence - 1), new: hold(new, fence), old_lease, due: None }
    }

    #[test]
    fn a_rerun_is_counted_from_the_kill_that_cut_it_short() {
        let (job, other) = (JobId::generate(), JobId::generate());
        let runs = [
            run(job, 2, "a", 90, None),
            run(job, 5, "b", 1_250, Some(1_260)),
            run(job, 8, "c", 1_900, Some(1_910)),
            run(other, 2, "a", 80, Some(95)),
        ];
        let changes = [
            change(job, 80, 2, None, Some("a/1")),
            change(job, 1_130, 3, Some("a/1"), Some("b/1")),
            change(job, 1_140, 4, Some("b/1"), None),
            change(job, 1_190, 5, None, Some("b/1")),
            change(job, 1_300, 6, Some("b/1"), None),
        ];
        let found = reruns(&[("a".to_owned(), 100)], &runs, &changes);
        let expected = Rerun {
            total: 1_150,
            lease: 1_000,
            takeover: 30,
            requeue: 10,
            claim: 50,
            start: 60,
            hit_again: false,
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_job_that_was_taken_over_twice_was_hit_again() {
        let job = JobId::generate();
        let runs = [run(job, 2, "a", 90, None), run(job, 6, "c", 4_000, Some(4_001))];
        let changes = [
            change(job, 80, 2, None, Some("a/1")),
            change(job, 2_000, 3, Some("a/1"), Some("b/1")),
            change(job, 3_900, 4, Some("b/1"), Some("c/1")),
            change(job, 3_910, 5, Some("c/1"), None),
            change(job, 3_990, 6, None, Some("c/1")),
        ];
        let found = reruns(&[("a".to_owned(), 100)], &runs, &changes);
        assert!(found[0].hit_again);
        assert_eq!(found[0].requeue, 1_910);
    }

    #[test]
    fn a_percentile_is_one_of_the_numbers() {
        assert_eq!(percentile(vec![3, 1, 2], 50), Some(2));
        assert_eq!(percentile(vec![3, 1, 2], 99), Some(3));
        assert_eq!(percentile(Vec::new(), 99), None);
    }
}
