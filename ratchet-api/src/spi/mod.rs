//! Plug points of the engine. Each has a default in `ratchet-core`; replace what you need.
//!
//! Implementations are called from worker tasks, so none of them may block the thread for long, and a panic in one
//! is treated as its error. The traits that coordinate nodes are incubating: they may still change.

mod bean;
mod class_policy;
mod cluster;
mod executor;
mod identity;
mod invocation;
mod lifecycle;
mod listener;
mod metrics;
mod polling;
mod principal;
mod resilience;
mod retry;
mod sanitizer;
mod startup;
mod trace;

pub use bean::{Bean, BeanResolver};
pub use class_policy::ClassPolicy;
pub use cluster::{ClusterCoordinator, WakeupKind, WakeupListener, WakeupListeners};
pub use executor::{ExecutorProvider, JobFuture};
pub use identity::NodeIdentityProvider;
pub use invocation::{Invocation, InvocationError, JobInvocationResolver};
pub use lifecycle::{HookError, SchedulerLifecycleHook};
pub use listener::JobEventListener;
pub use metrics::{GateRejection, JobLabels, MetricsSink, RunEnd, RunResult, SubmitResult, WakeupDirection};
pub use polling::{PollSignal, PollingStrategy};
pub use principal::CallerPrincipalResolver;
pub use resilience::{BreakerStatus, CircuitState, Gate, ResilienceStrategy};
pub use retry::RetryPolicy;
pub use sanitizer::ErrorSanitizer;
pub use startup::StartupCoordinator;
pub use trace::TraceParentResolver;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobFailure, TargetName};

    struct Plain;
    impl RetryPolicy for Plain {}
    impl ClassPolicy for Plain {
        fn allows(&self, _: &TargetName) -> bool {
            false
        }
    }

    #[test]
    fn a_retry_policy_leaves_it_to_the_job_unless_it_says_otherwise() {
        let failure = JobFailure::new("E", "broken");
        assert!(Plain.should_retry(1, &failure));
        assert_eq!(Plain.delay(1, &failure), None);
    }

    #[test]
    fn a_class_policy_counts_as_configured_unless_it_says_otherwise() {
        assert!(Plain.is_configured());
    }

    #[test]
    fn a_closure_resolves_trace_parents() {
        let resolve = || Some("00-0af7-b7ad-01".to_owned());
        assert_eq!(resolve.trace_parent().as_deref(), Some("00-0af7-b7ad-01"));
    }
}
