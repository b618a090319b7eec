use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, millis, mins, secs};

/// Identity, heartbeat and crash recovery of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOptions {
    /// The name shown for this node, such as a pod name. Default none: host name and process id. It need not be unique,
    /// since ownership rests on a random incarnation that is made at every start.
    pub label: Option<String>,
    /// How long a node counts as alive after a beat. Default 30 s. Its jobs are taken over after that, so
    /// a crash delays them by about this; a shorter lease is less patient with a slow database.
    pub lease: Duration,
    /// Time between beats. Default 6 s, and never more than a fifth of the lease, so that single lost beats do
    /// no harm.
    pub beat: Duration,
    /// Whether load may shorten the time between beats, down to 1 s. Default true. Nothing lengthens it.
    pub dynamic_beat: bool,
    /// Time between two recovery sweeps for jobs of dead nodes. Default 6 s: one with every beat.
    pub recovery_interval: Duration,
    /// Maximum number of jobs that are taken over in one go. Default 100.
    pub recovery_limit: u32,
    /// Crashes of a node while it held a job, above which the job is dead-lettered. Default 3: a job that kills its
    /// process must not go through the whole cluster. A job that has crashed so often runs with no other job beside it,
    /// and only the crash of a node that held nothing else ends it.
    pub crash_limit: u32,
    /// Difference between this node's clock and the database's above which a warning is logged. Default
    /// 5 s. Only the database's clock decides anything.
    pub skew_warning: Duration,
}

impl NodeOptions {
    /// The shortest time between beats that load leads to.
    pub const MIN_DYNAMIC_BEAT: Duration = secs(1);

    /// Checks ranges, and that a lease spans at least five beats.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("node");
        if let Some(label) = &self.label {
            rules.ensure((1..=255).contains(&label.len()), "label", label, "1 to 255 bytes");
        }
        rules.within("lease", self.lease, secs(1), mins(60));
        let longest = self.lease / 5;
        let beat_holds = self.beat >= millis(100) && self.beat <= longest;
        rules.ensure(beat_holds, "beat", self.beat, format!("100ms to {longest:?} (a fifth of node.lease)"));
        rules.within("recovery_interval", self.recovery_interval, self.beat, mins(60));
        rules.within("recovery_limit", self.recovery_limit, 2, 10_000);
        rules.within("crash_limit", self.crash_limit, 1, 1_000);
        rules.within("skew_warning", self.skew_warning, millis(1), mins(60));
        rules.verdict()
    }
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            label: None,
            lease: secs(30),
            beat: secs(6),
            dynamic_beat: true,
            recovery_interval: secs(6),
            recovery_limit: 100,
            crash_limit: 3,
            skew_warning: secs(5),
        }
    }
}
