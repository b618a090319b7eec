use std::time::Duration;

use crate::JobFailure;
use crate::options::BreakerProfile;

/// The answer to whether a call to a service may be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The call may be made, and its result is to be reported.
    Admit,
    /// The call may not be made now. The job goes back to PENDING until `retry_in` has passed; no attempt is consumed.
    Reject {
        /// Time until calls may be tried again.
        retry_in: Duration,
    },
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// It lets calls through and counts their results.
    Closed,
    /// It refuses calls.
    Open,
    /// It lets a few trial calls through.
    HalfOpen,
}

/// The status of a breaker, for dashboards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerStatus {
    /// The service that it protects.
    pub service: String,
    /// The profile of its settings.
    pub profile: BreakerProfile,
    /// Its state.
    pub state: CircuitState,
    /// The calls that count; for an open breaker, those that opened it.
    pub calls: u32,
    /// The failed ones among them.
    pub failures: u32,
    /// Time until calls may be tried again; `None` if they may now.
    pub retry_in: Option<Duration>,
}

impl BreakerStatus {
    /// Creates the status of a breaker of the standard profile that has counted no calls.
    pub fn new(service: impl Into<String>, state: CircuitState) -> Self {
        let (service, profile) = (service.into(), BreakerProfile::Standard);
        Self { service, profile, state, calls: 0, failures: 0, retry_in: None }
    }
}

/// Protects services that jobs call; the default is a circuit breaker for each service.
///
/// `service` comes from a bounded vocabulary: it is the service that the job declares. A job that declares none is not
/// asked about. Refusals by the class policy come first and are never counted here.
pub trait ResilienceStrategy: Send + Sync + 'static {
    /// Declares the profile of a service; called at the start of a node for each service whose methods name one.
    ///
    /// # Contract
    /// - `resilience.declare`: comes before the first `enter`; settings made by hand take precedence.
    fn declare(&self, service: &str, profile: BreakerProfile) {
        let _ = (service, profile);
    }

    /// Asks for permission to call `service`, before a body runs.
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

    /// Reports that a call that was let in was never made.
    ///
    /// # Contract
    /// - `resilience.abandon`: gives the trial back and counts as nothing.
    fn abandon(&self, service: &str);

    /// The breakers of this process, by service name; empty for a strategy without breakers.
    fn states(&self) -> Vec<BreakerStatus> {
        Vec::new()
    }

    /// Lets calls to `service` through again and forgets the results of earlier ones; `false` if it is not protected
    /// here.
    fn reset(&self, service: &str) -> bool {
        let _ = service;
        false
    }
}
