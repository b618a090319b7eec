use std::time::Duration;

use crate::JobFailure;

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
/// `service` comes from a bounded vocabulary: what the job declares, else `target.method`. Refusals by the class policy
/// are decided before and never counted here.
pub trait ResilienceStrategy: Send + Sync + 'static {
    /// Asked before a body runs. `Open` takes one trial call where those are limited, so a report must follow.
    fn enter(&self, service: &str) -> Gate;

    /// Reports how a call that was let in went; `None` for success.
    fn report(&self, service: &str, failure: Option<&JobFailure>);

    /// A call that was let in was never made.
    fn abandon(&self, service: &str);
}
