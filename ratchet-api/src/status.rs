//! The life cycle: six states and the moves between them. Drawn in `docs/lifecycle.md`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::UnknownValue;

/// The status of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// Waiting to be claimed: for its time, for its parents, or for a free slot.
    Pending,
    /// Claimed by exactly one owner.
    Running,
    /// Ended with success. Terminal.
    Succeeded,
    /// Ended for good without success: the dead-letter queue. Terminal until it is retried by hand.
    Failed,
    /// Paused by hand; remembers whether it was pending or failed.
    Paused,
    /// Canceled. Terminal, unless a manual retry revives the job together with the parent whose failure canceled it.
    Canceled,
}

impl JobStatus {
    /// Every status, in the order of the life cycle.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Paused, Self::Canceled];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Paused => "PAUSED",
            Self::Canceled => "CANCELED",
        }
    }

    /// Whether the job has ended: it has no hot row and holds no key and no permit. A running job whose cancel was
    /// accepted reads as CANCELED but keeps all three until its body has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }

    /// Whether a legal move leads from this status to `to`.
    pub fn can_move(self, to: Self) -> bool {
        TRANSITIONS.iter().any(|t| t.from == self && t.to == to)
    }
}

/// One legal move and what causes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The state that is left.
    pub from: JobStatus,
    /// The cause of the move.
    pub cause: Cause,
    /// The state that is entered.
    pub to: JobStatus,
}

/// The cause of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A node claims the job.
    Claim,
    /// Its body returned.
    Succeed,
    /// Its body failed and is retried.
    ScheduleRetry,
    /// Its body failed for good.
    DeadLetter,
    /// A node hands it back unfinished.
    HandBack,
    /// A caller, or the end of a parent, cancels it.
    Cancel,
    /// An operator pauses it.
    Pause,
    /// An operator resumes it.
    Resume,
    /// An operator retries it, or the parent whose failure canceled it.
    Retry,
}

macro_rules! transitions {
    ($($from:ident $cause:ident $to:ident;)*) => {
        /// Every legal move. A move that is not listed here does not happen, on any store.
        pub const TRANSITIONS: &[Transition] =
            &[$(Transition { from: JobStatus::$from, cause: Cause::$cause, to: JobStatus::$to }),*];
    };
}

transitions! {
    Pending Claim         Running;
    Pending Pause         Paused;
    Pending Cancel        Canceled;
    Running Succeed       Succeeded;
    Running ScheduleRetry Pending;
    Running HandBack      Pending;
    Running DeadLetter    Failed;
    Running Cancel        Canceled;
    Paused  Resume        Pending;
    Paused  Resume        Failed;
    Paused  Cancel        Canceled;
    Failed  Retry         Pending;
    Failed  Pause         Paused;
    Canceled Retry        Pending;
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for JobStatus {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| UnknownValue { what: "job status", value: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobStatus::*;

    // shows: S24 S25 S30
    #[test]
    fn exactly_the_drawn_moves_are_legal() {
        let legal = [
            (Pending, vec![Running, Paused, Canceled]),
            (Running, vec![Pending, Succeeded, Failed, Canceled]),
            (Succeeded, vec![]),
            (Failed, vec![Pending, Paused]),
            (Paused, vec![Pending, Failed, Canceled]),
            // Only together with the parent whose failure canceled it.
            (Canceled, vec![Pending]),
        ];
        for (from, to) in legal {
            let reached: Vec<_> = JobStatus::ALL.into_iter().filter(|s| from.can_move(*s)).collect();
            assert_eq!(reached, to, "from {from}");
        }
    }

    #[test]
    fn a_job_ends_by_success_failure_or_cancel() {
        let ends: Vec<_> = JobStatus::ALL.into_iter().filter(|status| status.is_terminal()).collect();
        assert_eq!(ends, [Succeeded, Failed, Canceled]);
    }

    // shows: S22
    #[test]
    fn names_round_trip_and_others_are_refused() {
        for status in JobStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(status.to_string(), status.as_str());
        }
        assert!("pending".parse::<JobStatus>().is_err());
    }
}
