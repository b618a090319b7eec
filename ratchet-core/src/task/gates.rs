//! May it run? What stands between a loaded job and its body, in the order of the specification.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::spi::{Bean, Gate, GateRejection};
use ratchet_api::store::{Permit, PermitRequest};
use ratchet_api::{DeadReason, HandBackReason, Job, JobClaim, JobFailure, TargetName};

use super::Stop;
use crate::engine::{Engine, retry_while_leased};
use crate::registry::Method;

/// A call that a breaker let in. Unless it is reported, it was never made.
pub(crate) struct Admission<'e> {
    engine: &'e Engine,
    service: Option<String>,
}

impl Admission<'_> {
    /// How it went; `None` for success.
    pub(crate) fn report(mut self, failure: Option<&JobFailure>) {
        if let Some(service) = self.service.take() {
            self.engine.plugs.resilience.report(&service, failure);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            self.engine.plugs.resilience.abandon(&service);
        }
    }
}

/// Asks the breaker of the service that this method declares. One that declares none is not asked about: a breaker of its
/// own would keep a job that always fails from ever using its attempts up.
pub(crate) fn breaker<'e>(engine: &'e Engine, method: Option<&Method>) -> Result<Admission<'e>, Stop> {
    let Some(service) = method.and_then(|method| method.breaker.as_deref()).map(str::to_owned) else {
        return Ok(Admission { engine, service: None });
    };
    match engine.plugs.resilience.enter(&service) {
        Gate::Open => Ok(Admission { engine, service: Some(service) }),
        Gate::Closed { retry_in } => {
            Err(Stop::HandBack { delay: retry_in, reason: HandBackReason::BreakerOpen })
        }
    }
}

/// Gets a permit of the job's resource. The store takes it back with the outcome.
pub(crate) async fn permit(engine: &Engine, claim: &JobClaim, job: &Job) -> Result<(), Stop> {
    let Some(resource) = &job.spec.resource else { return Ok(()) };
    let request = PermitRequest { id: claim.id, fence: claim.fence, resource: resource.clone() };
    let permit = retry_while_leased(engine, "acquire", || engine.permits.send(request.clone())).await;
    match permit.ok_or(Stop::Lost)? {
        Permit::Granted => Ok(()),
        Permit::Full { retry_in } => {
            let delay = if retry_in.is_zero() { engine.options.retry.permit_delay } else { retry_in };
            Err(Stop::HandBack { delay, reason: HandBackReason::ResourceFull })
        }
        Permit::Unknown => Err(Stop::Failed(
            JobFailure::new("UnknownResource", format!("resource `{resource}` has no limit; configure it"))
                .do_not_retry("no node knows how many may use this resource"),
        )),
        Permit::Lost => Err(Stop::Lost),
    }
}

/// Asks the policy whether this target may run at all.
pub(crate) fn policy(engine: &Engine, target: &TargetName) -> Result<(), Stop> {
    match engine.plugs.policy.allows(target) {
        true => Ok(()),
        false => Err(Stop::Dead(
            JobFailure::new("Denied", format!("target `{target}` is not allowed by the class policy")),
            DeadReason::Denied,
        )),
    }
}

/// Finds the method and its bean. What is not known here goes back: another node may know it.
pub(crate) fn resolve(
    engine: &Engine,
    target: &TargetName,
    method: Option<Arc<Method>>,
) -> Result<(Arc<Method>, Option<Bean>), Stop> {
    let Some(method) = method else { return Err(unknown(engine, target)) };
    match engine.plugs.beans.resolve(method.target()) {
        None if method.needs_bean => Err(unknown(engine, target)),
        bean => Ok((method, bean)),
    }
}

/// What has not begun when the node stops goes back, so that another node begins it.
pub(crate) fn drain(engine: &Engine) -> Result<(), Stop> {
    match engine.takes_work() {
        true => Ok(()),
        false => Err(Stop::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }),
    }
}

fn unknown(engine: &Engine, target: &TargetName) -> Stop {
    let options = &engine.options.execution;
    let times = engine.unknown.count(target);
    engine.plugs.metrics.gate_rejected(target, GateRejection::UnknownTarget);
    if options.unknown_target_limit.is_some_and(|limit| times > limit) {
        let failure = JobFailure::new("UnknownTarget", format!("no node knows target `{target}`"));
        return Stop::Dead(failure, DeadReason::UnknownTarget);
    }
    let delay = growing(options.unknown_target_min_delay, options.unknown_target_max_delay, times);
    Stop::HandBack { delay, reason: HandBackReason::UnknownTarget }
}

/// Twice as long each time, up to `max`.
fn growing(min: Duration, max: Duration, times: u32) -> Duration {
    min.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1))).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_an_unknown_target_grows_up_to_its_bound() {
        let secs = Duration::from_secs;
        let delays: Vec<_> = [1, 2, 3, 7, 1_000].map(|times| growing(secs(1), secs(60), times)).into();
        assert_eq!(delays, [secs(1), secs(2), secs(4), secs(60), secs(60)]);
    }
}
