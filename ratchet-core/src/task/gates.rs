//! The gates between a loaded job and its body, in the order of the specification.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::spi::{Bean, Gate};
use ratchet_api::store::{Loaded, Permit, PermitRequest};
use ratchet_api::{
    DeadReason, HandBackReason, Job, JobClaim, JobFailure, JobPayload, ParkedOn, ResourceName, TargetName,
};

use super::attempt::Stop;
use crate::engine::{Engine, retry_while_leased};
use crate::registry::Method;

/// A call that a breaker let in. If it is not reported, it counts as never made.
pub(crate) struct Admission<'e> {
    engine: &'e Engine,
    service: Option<String>,
}

impl Admission<'_> {
    /// Reports how it ended; `None` for success.
    pub(crate) fn report(mut self, failure: Option<&JobFailure>) {
        if let Some(service) = self.service.take() {
            self.engine.node.execution.resilience.report(&service, failure);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            self.engine.node.execution.resilience.abandon(&service);
        }
    }
}

/// Asks the breaker of the service that this method declares. A method that declares none has no breaker: one of its
/// own would keep a job that always fails from ever using its attempts up.
pub(crate) fn breaker<'e>(engine: &'e Engine, method: &Method) -> Result<Admission<'e>, Stop> {
    let Some(service) = method.breaker.as_deref().map(str::to_owned) else {
        return Ok(Admission { engine, service: None });
    };
    let gate = engine.node.execution.resilience.enter(&service);
    engine.node.plugs.metrics.tell(|sink| sink.breaker(&service, gate != Gate::Admit));
    match gate {
        Gate::Admit => Ok(Admission { engine, service: Some(service) }),
        Gate::Reject { retry_in } => {
            Err(Stop::HandBack { delay: retry_in, reason: HandBackReason::BreakerOpen })
        }
    }
}

/// Acquires the permits of jobs that were claimed together, by one call: for those that the gates before will let pass,
/// of resources that are not scarce. A job may wait for its slot, and must not keep a scarce permit from others
/// meanwhile.
pub(crate) async fn permits_ahead(
    engine: &Engine,
    claims: &[JobClaim],
    loaded: &[Loaded],
) -> Vec<Option<Permit>> {
    let wanted: Vec<Option<PermitRequest>> =
        claims.iter().zip(loaded).map(|(claim, loaded)| request_ahead(engine, claim, loaded)).collect();
    let requests: Vec<PermitRequest> = wanted.iter().flatten().cloned().collect();
    if requests.is_empty() {
        return vec![None; claims.len()];
    }
    let acquired =
        retry_while_leased(engine, "acquire", || engine.node.store.acquire(&engine.owner, &requests)).await;
    let mut answers = acquired.unwrap_or_default().into_iter();
    wanted.into_iter().map(|wanted| wanted.and_then(|_| answers.next())).collect()
}

fn request_ahead(engine: &Engine, claim: &JobClaim, loaded: &Loaded) -> Option<PermitRequest> {
    let Loaded::Job(job, _) = loaded else { return None };
    let resource = job.spec.resource.as_ref()?;
    let payload = &job.spec.payload;
    let method = engine.node.registry.find(payload.target(), payload.method())?;
    let passes = method.breaker.is_none() && !claim.cancel_requested && !claim.expired;
    let is_scarce = || engine.node.parkings.has_told(&ParkedOn::Resource(resource.clone()));
    (passes && !is_scarce()).then(|| request(claim, resource))
}

fn request(claim: &JobClaim, resource: &ResourceName) -> PermitRequest {
    PermitRequest { id: claim.id, fence: claim.fence, resource: resource.clone() }
}

/// Gets a permit of the job's resource, unless it was asked for already. The store takes it back with the outcome.
pub(crate) async fn permit(
    engine: &Engine,
    claim: &JobClaim,
    job: &Job,
    asked: Option<Permit>,
) -> Result<(), Stop> {
    let Some(resource) = &job.spec.resource else { return Ok(()) };
    let permit = match asked {
        Some(permit) => Some(permit),
        None => {
            let request = request(claim, resource);
            retry_while_leased(engine, "acquire", || engine.permits.send(request.clone())).await
        }
    };
    match permit.ok_or(Stop::Lost)? {
        Permit::Granted => Ok(()),
        Permit::Full { retry_in } => {
            let look_in = if retry_in.is_zero() { engine.node.options.retry.permit_delay } else { retry_in };
            Err(Stop::Park { on: ParkedOn::Resource(resource.clone()), look_in: Some(look_in) })
        }
        Permit::Unknown => {
            engine.node.parkings.tell_unconfigured(resource);
            Err(Stop::Park { on: ParkedOn::Resource(resource.clone()), look_in: None })
        }
        Permit::Lost => Err(Stop::Lost),
    }
}

/// Asks the policy whether this target may run at all.
pub(crate) fn policy(engine: &Engine, target: &TargetName) -> Result<(), Stop> {
    match engine.node.plugs.policy.allows(target) {
        true => Ok(()),
        false => Err(Stop::Dead(
            JobFailure::new("Denied", format!("target `{target}` is not allowed by the class policy")),
            DeadReason::Denied,
        )),
    }
}

/// Finds the method. A job whose method is not known here waits for a node that knows it, whatever the policy of this
/// one says: another service may share the queue.
pub(crate) fn method(engine: &Engine, payload: &JobPayload) -> Result<Arc<Method>, Stop> {
    let method = engine.node.registry.find(payload.target(), payload.method()).cloned();
    method.ok_or_else(|| unknown(engine, payload))
}

/// Finds the bean of a method.
pub(crate) fn bean(engine: &Engine, payload: &JobPayload, method: &Method) -> Result<Option<Bean>, Stop> {
    match engine.node.execution.beans.resolve(method.target()) {
        None if method.called_on.is_some() => Err(unknown(engine, payload)),
        bean => Ok(bean),
    }
}

/// Hands back a job that has not begun when the node stops, so that another node begins it.
pub(crate) fn drain(engine: &Engine) -> Result<(), Stop> {
    match engine.takes_work() {
        true => Ok(()),
        false => Err(Stop::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }),
    }
}

fn unknown(engine: &Engine, payload: &JobPayload) -> Stop {
    let (target, called) = (payload.target(), payload.call_name());
    if !engine.node.registry.knows(&called) {
        return Stop::Park { on: ParkedOn::Method(called), look_in: None };
    }
    // This node lists the method, and would claim the job again at once if it were parked.
    let (options, times) = (&engine.node.options.execution, engine.node.unknown.count(target));
    let delay = growing(options.unknown_target_min_delay, options.unknown_target_max_delay, times);
    Stop::HandBack { delay, reason: HandBackReason::UnknownTarget }
}

/// The delay of hand-back number `times`: twice as long each time, up to `max`.
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
