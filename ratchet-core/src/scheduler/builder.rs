//! Setting a scheduler up.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ratchet_api::options::{OptionsError, QueueOptions, RatchetOptions};
use ratchet_api::spi::{
    BeanResolver, CallerPrincipalResolver, ClassPolicy, ClusterCoordinator, ErrorSanitizer, ExecutorProvider,
    HookError, JobEventListener, JobInvocationResolver, MetricsSink, NodeIdentityProvider, PollingStrategy,
    ResilienceStrategy, RetryPolicy, SchedulerLifecycleHook, TraceParentResolver,
};
use ratchet_api::store::JobStore;
use ratchet_api::{InvalidName, QueueName, StoreError, TargetName};
use tokio::runtime::Handle;

use super::{Client, Scheduler, Stepper};
use crate::defaults::{
    AlwaysRetry, Beans, CircuitBreakers, DefaultErrorSanitizer, DefaultNodeIdentity, JsonInvocationResolver,
    NoOpClusterCoordinator, PackagePrefixClassPolicy, TokioExecutor,
};
use crate::events::Events;
use crate::maintenance;
use crate::panics::install_hook;
use crate::poller::AdaptivePolling;
use crate::registry::{Method, RegisteredTwice, Registry, TwoProfiles};
use crate::scheduler::client::Parts;

/// A type whose methods are jobs. `#[jobs]` writes it.
pub trait JobTarget: Any + Send + Sync + Sized {
    /// The name that payloads call it by: stable, whatever becomes of the Rust type.
    const TARGET: &'static str;

    /// Its methods.
    ///
    /// # Errors
    /// A name that no store takes.
    fn methods() -> Result<Vec<Method>, InvalidName>;
}

/// A function that is a job. `#[job]` writes it.
pub trait JobFunction {
    /// How to call it.
    ///
    /// # Errors
    /// A name that no store takes.
    fn method() -> Result<Method, InvalidName>;
}

/// Why a scheduler does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Options out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A name that no store takes.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A target and method with two bodies.
    #[error(transparent)]
    Twice(#[from] RegisteredTwice),
    /// A breaker with two profiles.
    #[error(transparent)]
    Profiles(#[from] TwoProfiles),
    /// Nothing may run.
    #[error(
        "the class policy allows nothing, so no job could run; give one to the builder, \
         such as `.class_policy(PackagePrefixClassPolicy::allow([\"billing.\"]))`"
    )]
    EmptyPolicy,
    /// Something that is registered may not run.
    #[error(
        "target `{0}` is registered but the class policy does not allow it; add its prefix to the policy"
    )]
    Denied(TargetName),
    /// There is nothing to run.
    #[error("no job is registered; add a bean with `.bean(..)`, or use `Ratchet::client` to submit only")]
    NothingRegistered,
    /// A hook refused.
    #[error("a lifecycle hook refused the start: {0}")]
    Hook(HookError),
    /// The store is not usable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no thread for the heartbeat.
    #[error("the heartbeat cannot begin: {0}")]
    Heartbeat(#[from] std::io::Error),
}

/// Sets a scheduler up. What is not given has a default; [`start`](Self::start) refuses what cannot work.
#[must_use = "nothing runs before `start`"]
pub struct SchedulerBuilder {
    pub(super) store: Arc<dyn JobStore>,
    pub(super) options: RatchetOptions,
    pub(super) registry: Registry,
    pub(super) wrong: Option<InvalidName>,
    beans: Beans,
    pub(super) resolver_of_beans: Option<Arc<dyn BeanResolver>>,
    pub(super) policy: Option<Arc<dyn ClassPolicy>>,
    pub(super) retry: Arc<dyn RetryPolicy>,
    pub(super) resilience: Option<Arc<dyn ResilienceStrategy>>,
    pub(super) sanitizer: Option<Arc<dyn ErrorSanitizer>>,
    pub(super) executor: Option<Arc<dyn ExecutorProvider>>,
    pub(super) cluster: Option<Arc<dyn ClusterCoordinator>>,
    pub(super) invocation: Arc<dyn JobInvocationResolver>,
    pub(super) identity: Arc<dyn NodeIdentityProvider>,
    pub(super) principal: Option<Arc<dyn CallerPrincipalResolver>>,
    pub(super) trace: Option<Arc<dyn TraceParentResolver>>,
    pub(super) metrics: Arc<dyn MetricsSink>,
    pub(super) strategy: Option<Box<dyn PollingStrategy>>,
    pub(super) hooks: Vec<Arc<dyn SchedulerLifecycleHook>>,
    pub(super) events: Events,
}

/// Counts nothing.
struct NoMetrics;

impl MetricsSink for NoMetrics {}

impl SchedulerBuilder {
    pub(crate) fn new(store: Arc<dyn JobStore>) -> Self {
        Self {
            store,
            options: RatchetOptions::default(),
            registry: Registry::default(),
            wrong: None,
            beans: Beans::new(),
            resolver_of_beans: None,
            policy: None,
            retry: Arc::new(AlwaysRetry),
            resilience: None,
            sanitizer: None,
            executor: None,
            cluster: None,
            invocation: Arc::new(JsonInvocationResolver),
            identity: Arc::new(DefaultNodeIdentity::default()),
            principal: None,
            trace: None,
            metrics: Arc::new(NoMetrics),
            strategy: None,
            hooks: Vec::new(),
            events: Events::default(),
        }
    }

    /// Registers the methods of a bean, and the bean itself.
    pub fn bean<T: JobTarget>(mut self, bean: T) -> Self {
        match (TargetName::new(T::TARGET), T::methods()) {
            (Ok(target), Ok(methods)) => {
                self.beans.insert(target, Arc::new(bean));
                methods.into_iter().fold(self, Self::method)
            }
            (Err(error), _) | (_, Err(error)) => self.wrong(error),
        }
    }

    /// Registers a function.
    pub fn function<F: JobFunction>(self) -> Self {
        match F::method() {
            Ok(method) => self.method(method),
            Err(error) => self.wrong(error),
        }
    }

    /// Registers a method without a macro.
    pub fn method(mut self, method: Method) -> Self {
        self.registry.add(method);
        self
    }

    /// Gives the bean of a target whose methods were registered by [`method`](Self::method).
    pub fn bean_of(mut self, target: &str, bean: impl Any + Send + Sync) -> Self {
        match TargetName::new(target) {
            Ok(target) => {
                self.beans.insert(target, Arc::new(bean));
                self
            }
            Err(error) => self.wrong(error),
        }
    }

    fn wrong(mut self, error: InvalidName) -> Self {
        self.wrong.get_or_insert(error);
        self
    }

    /// Every number that can be set.
    pub fn options(mut self, options: RatchetOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes some of the numbers that can be set.
    pub fn configure(mut self, change: impl FnOnce(&mut RatchetOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Which targets may run. Nothing may, until this is given.
    pub fn class_policy(mut self, policy: impl ClassPolicy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Finds beans elsewhere, such as in a container.
    pub fn bean_resolver(mut self, resolver: impl BeanResolver) -> Self {
        self.resolver_of_beans = Some(Arc::new(resolver));
        self
    }

    /// Has a say in whether a failed job is tried again.
    pub fn retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Arc::new(policy);
        self
    }

    /// Protects the services that jobs call.
    pub fn resilience(mut self, strategy: impl ResilienceStrategy) -> Self {
        self.resilience = Some(Arc::new(strategy));
        self
    }

    /// Makes error text fit to be stored, logged and published.
    pub fn error_sanitizer(mut self, sanitizer: impl ErrorSanitizer) -> Self {
        self.sanitizer = Some(Arc::new(sanitizer));
        self
    }

    /// Where attempts run.
    pub fn executor(mut self, executor: impl ExecutorProvider) -> Self {
        self.executor = Some(Arc::new(executor));
        self
    }

    /// Tells other nodes about new work. The default is the store's own way, if it has one.
    pub fn cluster(mut self, coordinator: impl ClusterCoordinator) -> Self {
        self.cluster = Some(Arc::new(coordinator));
        self
    }

    /// Turns calls into payloads and back.
    pub fn invocation_resolver(mut self, resolver: impl JobInvocationResolver) -> Self {
        self.invocation = Arc::new(resolver);
        self
    }

    /// Names this node.
    pub fn identity(mut self, identity: impl NodeIdentityProvider) -> Self {
        self.identity = Arc::new(identity);
        self
    }

    /// Tells who submits.
    pub fn caller_principal(mut self, resolver: impl CallerPrincipalResolver) -> Self {
        self.principal = Some(Arc::new(resolver));
        self
    }

    /// Tells which trace a submission belongs to. Without it, a job that a body enqueues belongs to the trace of that body.
    pub fn trace_parent(mut self, resolver: impl TraceParentResolver) -> Self {
        self.trace = Some(Arc::new(resolver));
        self
    }

    /// Where numbers about the engine go.
    pub fn metrics(mut self, metrics: impl MetricsSink) -> Self {
        self.metrics = Arc::new(metrics);
        self
    }

    /// Decides how long the poller waits.
    pub fn polling_strategy(mut self, strategy: impl PollingStrategy) -> Self {
        self.strategy = Some(Box::new(strategy));
        self
    }

    /// Is asked before and after start and stop.
    pub fn hook(mut self, hook: impl SchedulerLifecycleHook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Is told every event.
    pub fn listener(self, listener: impl JobEventListener) -> Self {
        self.events.add(Arc::new(listener));
        self
    }

    /// Joins the cluster and begins to work.
    ///
    /// # Cancellation safety
    /// If nobody waits for it any more, the node stops.
    ///
    /// # Panics of jobs
    /// Sets a panic hook once in a process: the text of a job's panic goes to stderr sanitized, with the job's id. A hook
    /// of your own, set before, is called instead, with the panic as it is.
    ///
    /// # Errors
    /// See [`StartError`]: each says what to do.
    pub async fn start(self) -> Result<Scheduler, StartError> {
        self.check()?;
        install_hook();
        Scheduler::start(self).await
    }

    /// Joins the cluster, and works only when it is told to: see [`Stepper`].
    ///
    /// # Errors
    /// See [`StartError`]: each says what to do.
    pub async fn start_stepping(self) -> Result<Stepper, StartError> {
        self.check()?;
        install_hook();
        Stepper::start(self).await
    }

    /// A client with the same settings, that runs nothing.
    pub(super) fn into_client(self) -> Client {
        Client::new(Parts {
            cluster: self.cluster_or_default(),
            policy: self.policy.unwrap_or_else(|| Arc::new(AllowAll)),
            sanitizer: self
                .sanitizer
                .unwrap_or_else(|| Arc::new(DefaultErrorSanitizer::new(&self.options.security))),
            store: self.store,
            options: self.options,
            principal: self.principal,
            trace: self.trace,
            events: self.events,
            stop: Arc::new(|_| {}),
            bell: Arc::default(),
            alarm: Arc::default(),
        })
    }

    fn check(&self) -> Result<(), StartError> {
        if let Some(error) = &self.wrong {
            return Err(error.clone().into());
        }
        self.options.validate()?;
        maintenance::check(&self.options.maintenance)?;
        self.registry.check()?;
        self.registry.breaker_profiles()?;
        let targets = self.registry.targets();
        if targets.is_empty() {
            return Err(StartError::NothingRegistered);
        }
        let policy = self.policy.as_ref().filter(|policy| policy.is_configured());
        match policy {
            None if self.options.security.allow_empty_class_policy => Ok(()),
            None => Err(StartError::EmptyPolicy),
            Some(policy) => match targets.into_iter().find(|target| !policy.allows(target)) {
                Some(target) => Err(StartError::Denied(target)),
                None => Ok(()),
            },
        }
    }

    /// What people call this node.
    pub(super) fn label(&self) -> Result<String, InvalidName> {
        let label = self.options.node.label.clone().unwrap_or_else(|| self.identity.node_id());
        DefaultNodeIdentity::fixed(label).map(|identity| identity.node_id())
    }

    /// The queues that this node serves.
    pub(super) fn queues(&self) -> Result<Vec<(QueueName, QueueOptions)>, InvalidName> {
        let queues = &self.options.execution.queues;
        queues.iter().map(|(name, queue)| Ok((QueueName::new(name.as_str())?, queue.clone()))).collect()
    }

    pub(super) fn beans(&mut self) -> Arc<dyn BeanResolver> {
        let beans = std::mem::take(&mut self.beans);
        self.resolver_of_beans.take().unwrap_or_else(|| Arc::new(beans))
    }

    pub(super) fn policy(&self) -> Arc<dyn ClassPolicy> {
        self.policy.clone().unwrap_or_else(|| Arc::new(PackagePrefixClassPolicy::deny_all()))
    }

    pub(super) fn resilience_or_default(&mut self) -> Result<Arc<dyn ResilienceStrategy>, TwoProfiles> {
        let breakers = || -> Arc<dyn ResilienceStrategy> {
            Arc::new(CircuitBreakers::new(self.options.breaker.clone()))
        };
        let strategy = self.resilience.take().unwrap_or_else(breakers);
        for (service, profile) in self.registry.breaker_profiles()? {
            strategy.declare(service, profile);
        }
        Ok(strategy)
    }

    pub(super) fn sanitizer(&self) -> Arc<dyn ErrorSanitizer> {
        self.sanitizer.clone().unwrap_or_else(|| Arc::new(DefaultErrorSanitizer::new(&self.options.security)))
    }

    pub(super) fn cluster_or_default(&self) -> Arc<dyn ClusterCoordinator> {
        let given = self.cluster.clone().or_else(|| self.store.coordinator());
        given.unwrap_or_else(|| Arc::new(NoOpClusterCoordinator::default()))
    }

    pub(super) fn executor_or_default(&mut self) -> Arc<dyn ExecutorProvider> {
        self.executor.take().unwrap_or_else(|| Arc::new(TokioExecutor::new(Handle::current())))
    }

    pub(super) fn strategy_or_default(&mut self) -> Box<dyn PollingStrategy> {
        let adaptive = || -> Box<dyn PollingStrategy> {
            Box::new(AdaptivePolling::new(self.options.polling.clone(), Instant::now()))
        };
        self.strategy.take().unwrap_or_else(adaptive)
    }
}

/// A process that only submits has no say in what runs.
struct AllowAll;

impl ClassPolicy for AllowAll {
    fn allows(&self, _: &TargetName) -> bool {
        true
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder").field("store", &self.store.name()).finish_non_exhaustive()
    }
}
