use std::time::Duration;

use crate::JobFailure;
use crate::options::BreakerProfile;

/// Whether calls to a service may be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Go ahead, and report how it went.
    Open,
    /// Not now; ask again after this. The job goes back with no attempt consumed.
    Closed {
        /// Time until calls may be tried again.
        retry_in: Duration,
    },
}

/// Protects services that jobs call; the default is a circuit breaker for each service.
///
/// `service` comes from a bounded vocabulary: what the job declares. One that declares none is not asked about. Refusals by the class policy
/// are decided before and never counted here.
pub trait ResilienceStrategy: Send + Sync + 'static {
    /// Told at the start of a node, for each service whose methods name a profile.
    ///
    /// # Contract
    /// - `resilience.declare`: comes before the first `enter`; what was set up by hand counts for more.
    fn declare(&self, service: &str, profile: BreakerProfile) {
        let _ = (service, profile);
    }

    /// Asked before a body runs.
    ///
    /// # Contract
    /// - `resilience.enter`: `Open` takes one trial call where those are limited; `report` or `abandon` follows.
    /// - `resilience.retry_in`: `Closed` tells the time until calls may be tried again, not a constant.
    fn enter(&self, service: &str) -> Gate;

    /// Reports how a call that was let in went; `None` for success.
    ///
    /// # Contract
    /// - `resilience.report`: each call that was let in counts once, as success or failure.
    fn report(&self, service: &str, failure: Option<&JobFailure>);

    /// A call that was let in was never made.
    ///
    /// # Contract
    /// - `resilience.abandon`: gives the trial back and counts as nothing.
    fn abandon(&self, service: &str);
}
