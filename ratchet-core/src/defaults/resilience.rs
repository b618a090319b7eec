//! Circuit breakers: they keep jobs from calling a service that is down, and from losing attempts to it.

mod breaker;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ratchet_api::JobFailure;
use ratchet_api::options::{BreakerOptions, BreakerProfile};
use ratchet_api::spi::{BreakerStatus, CircuitState, Gate, ResilienceStrategy};

use breaker::Breaker;

type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The default strategy: a circuit breaker for each service, shaped by the profile that the service was given.
///
/// A breaker counts the newest calls. Once enough of them failed it opens, and jobs of the service are handed back
/// without losing an attempt. After a while it lets a few trial calls through: if all succeed it closes, if one fails
/// it opens again. A failure that says not to try again ([`do_not_retry`](JobFailure::do_not_retry)) is about the job
/// and not about the service, and does not count, unless [`count_do_not_retry`](BreakerOptions::count_do_not_retry) is
/// set. Trials that have not reported within the time that a breaker stays open are replaced by new ones. A call that
/// was let in before the breaker opened and reports during the trials counts like a trial, since it tells as much about
/// the service.
///
/// ```
/// use ratchet_core::JobFailure;
/// use ratchet_core::options::{BreakerOptions, BreakerProfile};
/// use ratchet_core::spi::{CircuitState, Gate, ResilienceStrategy};
/// use ratchet_core::defaults::CircuitBreakers;
///
/// let breakers = CircuitBreakers::new(BreakerOptions::default()).profile("payment-gateway", BreakerProfile::Fast);
/// let outage = JobFailure::new("ConnectError", "refused");
/// for _ in 0..3 {
///     assert_eq!(breakers.enter("payment-gateway"), Gate::Admit);
///     breakers.report("payment-gateway", Some(&outage));
/// }
/// assert!(matches!(breakers.enter("payment-gateway"), Gate::Reject { .. }));
/// assert_eq!(breakers.enter("mail"), Gate::Admit);
/// assert_eq!(breakers.states()[1].state, CircuitState::Open);
/// ```
///
/// Service names are a bounded vocabulary, so at most [`MAX_SERVICES`](Self::MAX_SERVICES) are kept. One more takes
/// the place of the closed breaker that was used least recently; if none is closed it is let through uncounted. A
/// warning says so once.
pub struct CircuitBreakers {
    options: BreakerOptions,
    /// Profiles that the application set.
    profiles: HashMap<String, BreakerProfile>,
    /// Profiles that methods declare.
    declared: Mutex<HashMap<String, BreakerProfile>>,
    clock: Clock,
    breakers: Mutex<HashMap<String, Breaker>>,
    warned: AtomicBool,
}

impl CircuitBreakers {
    /// The most services that have a breaker at the same time.
    pub const MAX_SERVICES: usize = 1024;

    /// Breakers with these options and the system's monotonic clock.
    pub fn new(options: BreakerOptions) -> Self {
        Self {
            options,
            profiles: HashMap::new(),
            declared: Mutex::default(),
            clock: Arc::new(Instant::now),
            breakers: Mutex::default(),
            warned: AtomicBool::new(false),
        }
    }

    /// Gives `service` a profile, whatever its methods say; services without one have [`BreakerProfile::Standard`].
    #[must_use]
    pub fn profile(mut self, service: impl Into<String>, profile: BreakerProfile) -> Self {
        self.profiles.insert(service.into(), profile);
        self
    }

    /// Uses another clock, which never goes backwards.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens the breaker of `service` by hand; trial calls follow after `duration`, at most a year.
    pub fn open(&self, service: &str, duration: Duration) {
        self.with(service, |breaker, now| breaker.open(now, duration));
    }

    /// Calls `act` on the breaker of `service`, created if needed; `None` if there is no room for it. Logs state
    /// changes.
    fn with<T>(&self, service: &str, act: impl FnOnce(&mut Breaker, Instant) -> T) -> Option<T> {
        let mut breakers = self.breakers();
        let now = (self.clock)();
        if !breakers.contains_key(service) {
            if breakers.len() >= Self::MAX_SERVICES && !self.make_room(&mut breakers, now) {
                return None;
            }
            let settings = self.options.settings(self.profile_of(service));
            breakers.insert(service.to_owned(), Breaker::new(settings, now));
        }
        let breaker = breakers.get_mut(service)?;
        breaker.touch(now);
        let before = breaker.circuit_state();
        let answer = act(breaker, now);
        let after = breaker.circuit_state();
        let (calls, failures, retry_in) = (breaker.calls(), breaker.failures(), breaker.retry_in(now));
        drop(breakers);
        match after {
            _ if after == before => {}
            CircuitState::Open => {
                tracing::info!(
                    service,
                    calls,
                    failures,
                    ?retry_in,
                    "circuit breaker opened: jobs are deferred"
                );
            }
            CircuitState::HalfOpen => tracing::debug!(service, "circuit breaker lets trial calls through"),
            CircuitState::Closed => tracing::info!(service, "circuit breaker closed: jobs run again"),
        }
        Some(answer)
    }

    fn make_room(&self, breakers: &mut HashMap<String, Breaker>, now: Instant) -> bool {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                max = Self::MAX_SERVICES,
                "too many services for circuit breakers; idle ones are replaced: are names made from data?"
            );
        }
        let closed = breakers.iter().filter(|(_, breaker)| breaker.state(now) == CircuitState::Closed);
        let Some(idle) =
            closed.min_by_key(|(_, breaker)| breaker.touched()).map(|(service, _)| service.clone())
        else {
            return false;
        };
        breakers.remove(&idle).is_some()
    }

    fn profile_of(&self, service: &str) -> BreakerProfile {
        let declared = || self.declared().get(service).copied();
        self.profiles.get(service).copied().or_else(declared).unwrap_or_default()
    }

    fn declared(&self) -> MutexGuard<'_, HashMap<String, BreakerProfile>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breakers(&self) -> MutexGuard<'_, HashMap<String, Breaker>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResilienceStrategy for CircuitBreakers {
    fn declare(&self, service: &str, profile: BreakerProfile) {
        self.declared().insert(service.to_owned(), profile);
    }

    fn enter(&self, service: &str) -> Gate {
        if !self.options.enabled {
            return Gate::Admit;
        }
        self.with(service, Breaker::enter).unwrap_or(Gate::Admit)
    }

    fn report(&self, service: &str, failure: Option<&JobFailure>) {
        // The service answered, if only with a refusal, or was not even asked.
        let settled = failure.is_some_and(|failure| failure.retry_advice().never().is_some());
        if settled && !self.options.count_do_not_retry {
            return self.abandon(service);
        }
        if self.options.enabled {
            self.with(service, |breaker, now| breaker.report(failure.is_some(), now));
        }
    }

    fn abandon(&self, service: &str) {
        if let Some(breaker) = self.breakers().get_mut(service) {
            breaker.abandon();
        }
    }

    fn states(&self) -> Vec<BreakerStatus> {
        let breakers = self.breakers();
        let now = (self.clock)();
        let mut states: Vec<_> = breakers
            .iter()
            .map(|(service, breaker)| {
                let mut status = BreakerStatus::new(service.as_str(), breaker.state(now));
                status.profile = self.profile_of(service);
                (status.calls, status.failures) = (breaker.calls(), breaker.failures());
                status.retry_in = breaker.retry_in(now);
                status
            })
            .collect();
        states.sort_unstable_by(|a, b| a.service.cmp(&b.service));
        states
    }

    fn reset(&self, service: &str) -> bool {
        let known = self.breakers().contains_key(service);
        known && self.with(service, |breaker, _| breaker.close()).is_some()
    }
}

impl fmt::Debug for CircuitBreakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreakers").field("states", &self.states()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
