use crate::TargetName;

/// Decides which targets may run at all.
///
/// Asked when a job is submitted and again before it runs, callbacks included, because a stored row is not trusted. The
/// default denies everything until prefixes are given, and a scheduler with an empty policy does not start.
pub trait ClassPolicy: Send + Sync + 'static {
    /// Whether jobs of `target` may run.
    ///
    /// # Contract
    /// - `policy.stable`: the same target gets the same answer as long as the scheduler runs.
    /// - `policy.literal`: names are compared as they are: by whole segments, case-sensitively, never as patterns.
    fn allows(&self, target: &TargetName) -> bool;

    /// Whether the policy can allow anything.
    ///
    /// # Contract
    /// - `policy.configured`: `false` keeps the scheduler from starting.
    fn is_configured(&self) -> bool {
        true
    }
}
