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

/// Whether a breaker lets calls through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// It does, and counts how they go.
    Closed,
    /// It does not.
    Open,
    /// It lets a few trial calls through.
    HalfOpen,
}

/// A breaker as a dashboard shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerStatus {
    /// The service that it protects.
    pub service: String,
    /// The settings that it follows.
    pub profile: BreakerProfile,
    /// Whether it lets calls through.
    pub state: CircuitState,
    /// Calls that count; of an open one, those that opened it.
    pub calls: u32,
    /// Those of them that failed.
    pub failures: u32,
    /// Time until calls may be tried again; `None` if they may now.
    pub retry_in: Option<Duration>,
}

impl BreakerStatus {
    /// A breaker of the standard profile that has counted no calls.
    pub fn new(service: impl Into<String>, state: CircuitState) -> Self {
        let (service, profile) = (service.into(), BreakerProfile::Standard);
        Self { service, profile, state, calls: 0, failures: 0, retry_in: None }
    }
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

    /// What protects which service how, in this process, by service name; nothing if it has no such thing.
    fn states(&self) -> Vec<BreakerStatus> {
        Vec::new()
    }

    /// Lets calls to `service` through again and forgets how the last ones went; `false` if it is not protected here.
    fn reset(&self, service: &str) -> bool {
        let _ = service;
        false
    }
}
