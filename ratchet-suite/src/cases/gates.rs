//! The gates between a claim and its body, and their order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_api::spi::{Bean, BeanResolver, ClassPolicy, Gate, ResilienceStrategy};
use ratchet_api::{JobPriority, ResourceLimit, ResourceName, TargetName, Timestamp};
use ratchet_core::{BreakerProfile, JobFailure, Ratchet, StartError, jobs};

use crate::{Fixture, Node};

crate::cases! {
    the_steps_of_an_attempt_come_in_their_order;
    a_breaker_is_declared_by_a_target_or_a_method;
}

/// A plug for every gate, which notes the order of calls.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<String>>>);

impl Steps {
    fn note(&self, step: impl Into<String>) {
        self.0.lock().expect("nobody panics").push(step.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("nobody panics"))
    }
}

impl ResilienceStrategy for Steps {
    fn declare(&self, service: &str, profile: BreakerProfile) {
        self.note(format!("{service} is {profile:?}"));
    }
    fn enter(&self, service: &str) -> Gate {
        self.note(format!("into {service}"));
        Gate::Admit
    }
    fn report(&self, service: &str, failure: Option<&JobFailure>) {
        self.note(format!("out of {service}: {}", failure.map_or("well", JobFailure::class)));
    }
    fn abandon(&self, service: &str) {
        self.note(format!("not into {service}"));
    }
}

impl ClassPolicy for Steps {
    fn allows(&self, _: &TargetName) -> bool {
        self.note("policy");
        true
    }
}

impl BeanResolver for Steps {
    fn resolve(&self, _: &TargetName) -> Option<Bean> {
        self.note("bean");
        Some(Arc::new(self.clone()))
    }
}

#[jobs(target = "test.Steps", breaker = "bank", breaker_profile = "external_api")]
impl Steps {
    #[job(resource = "door")]
    async fn walk(&self) {
        self.note("body");
    }

    #[job]
    async fn stumble(&self) -> Result<(), JobFailure> {
        Err(JobFailure::new("Stumbled", "over a stone"))
    }

    #[job(breaker = "mail", breaker_profile = "fast")]
    async fn write(&self) {}
}

async fn steps(fx: &Fixture) -> (Node, Steps) {
    let steps = Steps::default();
    let plugs = steps.clone();
    let node = fx.node(|builder| {
        let builder = builder.register(plugs.clone()).class_policy(plugs.clone());
        builder.resilience(plugs.clone()).bean_resolver(plugs)
    });
    (node.await, steps)
}

// shows: S71 S80
async fn the_steps_of_an_attempt_come_in_their_order(fx: Fixture) {
    let (node, steps) = steps(&fx).await;
    let mut door = ResourceLimit::new(ResourceName::new("door").expect("a name"), 1);
    node.client().store().configure_resource(&door).await.expect("stored");
    // A client submits, so that only the node asks the policy.
    let client = fx.client().await;
    let walk = || client.enqueue(Steps::job().walk());

    steps.take();
    let job = walk().submit().await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    job.ended().await.expect("it ends");
    assert_eq!(steps.take(), ["into bank", "policy", "bean", "body", "out of bank: well"]);

    let job = client.enqueue(Steps::job().stumble()).submit().await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    job.ended().await.expect("it ends");
    assert_eq!(steps.take(), ["into bank", "policy", "bean", "out of bank: Stumbled"]);

    let past = Timestamp::from_millis(1_000);
    let job = walk().expires_at(past).submit().await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    job.ended().await.expect("it ends");
    assert_eq!(steps.take(), [""; 0], "what is called off is called off first");

    door.max_concurrent = 0;
    door.retry_delay = Duration::from_secs(3_600);
    node.client().store().configure_resource(&door).await.expect("stored");
    let job = walk().submit().await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    node.until(job.id(), |job| job.fence.version() == 3).await;
    assert_eq!(steps.take(), ["into bank", "not into bank"], "the permit comes after the breaker");
    node.stop().await;
}

// shows: S117
async fn a_breaker_is_declared_by_a_target_or_a_method(fx: Fixture) {
    let (node, steps) = steps(&fx).await;
    let told = steps.take();
    assert!(told.ends_with(&["bank is ExternalApi".to_owned(), "mail is Fast".to_owned()]), "{told:?}");
    let job = node.enqueue(Steps::job().write()).submit().await.expect("stored");
    job.ended().await.expect("it ends");
    let told = steps.take();
    assert!(told.contains(&"into mail".to_owned()), "its own, not that of its target: {told:?}");
    node.stop().await;

    let torn = Ratchet::builder_shared(fx.store().await).class_policy(Steps::default()).register(Torn);
    let error = torn.start().await.expect_err("which profile would hold?");
    assert!(matches!(&error, StartError::Profiles(service) if service.0 == "bank"), "{error}");
}

struct Torn;

#[jobs(target = "test.Torn", breaker = "bank", breaker_profile = "critical")]
impl Torn {
    #[job]
    async fn one(&self) {}

    #[job(breaker = "bank", breaker_profile = "standard")]
    async fn other(&self) {}
}
