//! Output of operations on many jobs.

use std::fmt;

use ratchet_api::JobId;
use ratchet_core::Steered;
use serde::Serialize;

/// The number of jobs changed, and the jobs that were not.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Many {
    /// Jobs that were retried or canceled.
    done: u64,
    /// Those of them that are running.
    told_to_stop: u64,
    /// Dependents that were canceled with them, or wait again.
    dependents: u64,
    /// Jobs that another caller changed meanwhile.
    changed: u64,
    key_taken: Vec<KeyTaken>,
    unreadable: Vec<JobId>,
    #[serde(skip)]
    participle: &'static str,
}

/// A dead letter whose business key is held by a live job.
#[derive(Clone, Debug, Serialize)]
struct KeyTaken {
    job: JobId,
    holder: JobId,
}

impl Many {
    pub(crate) fn of(steered: &Steered, participle: &'static str) -> Self {
        let taken = |taken: &ratchet_core::KeyTaken| KeyTaken { job: taken.job, holder: taken.holder };
        Self {
            done: steered.done,
            told_to_stop: steered.told_to_stop,
            dependents: steered.dependents,
            changed: steered.changed,
            key_taken: steered.key_taken.iter().map(taken).collect(),
            unreadable: steered.unreadable.clone(),
            participle,
        }
    }

    fn found(&self) -> u64 {
        self.done + self.changed + (self.key_taken.len() + self.unreadable.len()) as u64
    }
}

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, participle, .. } = self;
        for KeyTaken { job, holder } in &self.key_taken {
            writeln!(f, "{job}  unchanged: job {holder} has its business key, or that of a dependent")?;
        }
        for id in &self.unreadable {
            writeln!(f, "{id}  unchanged: it cannot be read")?;
        }
        match self.found() {
            0 => return writeln!(f, "No job matches."),
            found if found == *done => writeln!(f, "{} {participle}.", jobs(*done))?,
            found => writeln!(f, "{done} of {} {participle}.", jobs(found))?,
        }
        if self.told_to_stop > 0 {
            writeln!(f, "{} of them running, and told to stop.", self.told_to_stop)?;
        }
        if self.dependents > 0 {
            writeln!(f, "{} depending on them went along.", jobs(self.dependents))?;
        }
        if self.changed > 0 {
            writeln!(f, "{} changed meanwhile and left alone.", jobs(self.changed))?;
        }
        Ok(())
    }
}

fn jobs(count: u64) -> String {
    format!("{count} job{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(change: impl FnOnce(&mut Steered)) -> String {
        let mut steered = Steered::default();
        change(&mut steered);
        Many::of(&steered, "canceled").to_string()
    }

    #[test]
    fn counts_are_exact_and_nothing_is_said_of_nothing() {
        assert_eq!(told(|_| {}), "No job matches.\n");
        assert_eq!(told(|it| it.done = 1), "1 job canceled.\n");
        let all = told(|it| {
            it.done = 600;
            it.told_to_stop = 2;
            it.dependents = 1;
            it.changed = 3;
        });
        let expected = "600 of 603 jobs canceled.\n2 of them running, and told to stop.\n\
            1 job depending on them went along.\n3 jobs changed meanwhile and left alone.\n";
        assert_eq!(all, expected);
    }
}
