//! The builder of a scheduler.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ratchet_api::options::{QueueOptions, RatchetOptions};
use ratchet_api::spi::{
    Bean, BeanResolver, CallerPrincipalResolver, ClassPolicy, ClusterCoordinator, ErrorSanitizer,
    ExecutorProvider, JobEventListener, JobInvocationResolver, MetricsSink, NodeIdentityProvider,
    PollingStrategy, ResilienceStrategy, RetryPolicy, SchedulerLifecycleHook, StartupCoordinator,
    TraceParentResolver,
};
use ratchet_api::store::JobStore;
use ratchet_api::{InvalidName, JobError, QueueName, ResourceName, TargetName};
use tokio::runtime::Handle;

use super::{Client, JobFunction, JobTarget, Scheduler, StartError, Stepper};
use crate::coordinator::rate_limit::RateClock;
use crate::defaults::{
    AlwaysRetry, Beans, CircuitBreakers, DefaultErrorSanitizer, DefaultNodeIdentity, JsonInvocationResolver,
    NoOpClusterCoordinator, PackagePrefixClassPolicy, TokioExecutor,
};
use crate::engine::Plugs;
use crate::events::Events;
use crate::maintenance;
use crate::metrics::Metrics;
use crate::panics::install_hook;
use crate::poller::AdaptivePolling;
use crate::registry::{Method, Registry, TwoProfiles};
use crate::scheduler::client::Parts;
use crate::scheduler::resources::Resources;

/// A clock that measures how much time has passed.
type MonotonicClock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The builder of a scheduler. Settings that are not given have a default; [`start`](Self::start) refuses a setup that
/// cannot work.
#[must_use = "nothing runs before `start`"]
pub struct SchedulerBuilder {
    pub(super) store: Arc<dyn JobStore>,
    pub(super) options: RatchetOptions,
    pub(super) registry: Registry,
    pub(super) wrong: Option<InvalidName>,
    resources: BTreeMap<ResourceName, u32>,
    beans: Beans,
    claimed_twice: Option<TargetName>,
    pub(super) resolver_of_beans: Option<Arc<dyn BeanResolver>>,
    pub(super) policy: Option<Arc<dyn ClassPolicy>>,
    allowed: Vec<String>,
    pub(super) retry: Arc<dyn RetryPolicy>,
    pub(super) resilience: Option<Arc<dyn ResilienceStrategy>>,
    pub(super) sanitizer: Option<Arc<dyn ErrorSanitizer>>,
    pub(super) executor: Option<Arc<dyn ExecutorProvider>>,
    pub(super) cluster: Option<Arc<dyn ClusterCoordinator>>,
    pub(super) startup: Option<Arc<dyn StartupCoordinator>>,
    pub(super) invocation: Arc<dyn JobInvocationResolver>,
    pub(super) identity: Arc<dyn NodeIdentityProvider>,
    pub(super) principal: Option<Arc<dyn CallerPrincipalResolver>>,
    pub(super) trace: Option<Arc<dyn TraceParentResolver>>,
    pub(super) metrics: Metrics,
    pub(super) strategy: Option<Box<dyn PollingStrategy>>,
    pub(super) monotonic: Option<MonotonicClock>,
    pub(super) hooks: Vec<Arc<dyn SchedulerLifecycleHook>>,
    pub(super) events: Events,
}

impl SchedulerBuilder {
    pub(crate) fn new(store: Arc<dyn JobStore>) -> Self {
        Self {
            store,
            options: RatchetOptions::default(),
            registry: Registry::default(),
            wrong: None,
            resources: BTreeMap::new(),
            beans: Beans::new(),
            claimed_twice: None,
            resolver_of_beans: None,
            policy: None,
            allowed: Vec::new(),
            retry: Arc::new(AlwaysRetry),
            resilience: None,
            sanitizer: None,
            executor: None,
            cluster: None,
            startup: None,
            invocation: Arc::new(JsonInvocationResolver),
            identity: Arc::new(DefaultNodeIdentity::default()),
            principal: None,
            trace: None,
            metrics: Metrics::default(),
            strategy: None,
            monotonic: None,
            hooks: Vec::new(),
            events: Events::default(),
        }
    }

    /// Registers a service: the methods that `#[jobs]` found, and the object that they are called on. A service that
    /// the application uses as well is given as an `Arc`.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ratchet_core::{JobFailure, Ratchet, jobs};
    ///
    /// struct Mailer;
    ///
    /// #[jobs(target = "mail.Mailer")]
    /// impl Mailer {
    ///     #[job]
    ///     async fn welcome(&self, user: u64) -> Result<(), JobFailure> {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # let store = ratchet_store_memory::MemoryStore::new();
    /// let mailer = Arc::new(Mailer);
    /// let builder = Ratchet::builder(store).register(Arc::clone(&mailer)).allow(["mail."]);
    /// ```
    pub fn register<T: JobTarget>(self, service: T) -> Self {
        match T::methods() {
            Ok(methods) => methods.into_iter().fold(self, Self::method).bean(T::TARGET, service.into_bean()),
            Err(error) => self.wrong(error),
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

    /// Follows the retry advice of this error also where jobs hide it: in an `anyhow::Error`, in a `Box<dyn Error>`,
    /// among the sources of another error, or in a [`JobFailure`](crate::JobFailure) that `?` made. An error that a
    /// registered job returns as it is does not need this call.
    ///
    /// ```
    /// use ratchet_core::{JobError, Ratchet, jobs};
    ///
    /// #[derive(Debug, thiserror::Error, JobError)]
    /// #[error("card declined")]
    /// #[do_not_retry("declined by the issuer")]
    /// struct Declined;
    ///
    /// struct Till;
    ///
    /// #[jobs(target = "shop.Till")]
    /// impl Till {
    ///     #[job]
    ///     async fn charge(&self, order: u64) -> anyhow::Result<()> {
    ///         Err(anyhow::Error::from(Declined).context(format!("order {order}"))) // a dead letter at once
    ///     }
    /// }
    ///
    /// # let store = ratchet_store_memory::MemoryStore::new();
    /// let builder = Ratchet::builder(store).register(Till).allow(["shop."]).heed::<Declined>();
    /// ```
    pub fn heed<E: JobError>(self) -> Self {
        ratchet_api::heed::<E>();
        self
    }

    /// Sets the bean of a target whose methods were registered by [`method`](Self::method).
    pub fn bean_of(self, target: &str, bean: Arc<impl Any + Send + Sync>) -> Self {
        self.bean(target, bean)
    }

    fn bean(mut self, target: &str, bean: Bean) -> Self {
        match TargetName::new(target) {
            Ok(target) => {
                if self.beans.insert(target.clone(), bean).is_some() {
                    self.claimed_twice.get_or_insert(target);
                }
                self
            }
            Err(error) => self.wrong(error),
        }
    }

    fn wrong(mut self, error: InvalidName) -> Self {
        self.wrong.get_or_insert(error);
        self
    }

    /// Sets all options.
    pub fn options(mut self, options: RatchetOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes some options.
    pub fn configure(mut self, change: impl FnOnce(&mut RatchetOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Limits how many jobs may use a resource at once, in the whole cluster: those that name it by
    /// `#[job(resource = "printer")]` or `.resource("printer")`. The limit is written when the node starts. If nodes
    /// give different limits, the last to start wins, and its log says so; `ratchet resources set` changes it until
    /// then.
    ///
    /// A job that names a resource without a limit waits until there is one.
    ///
    /// ```
    /// # let store = ratchet_store_memory::MemoryStore::new();
    /// let builder = ratchet_core::Ratchet::builder(store).resource("printer", 2);
    /// ```
    pub fn resource(mut self, name: &str, limit: u32) -> Self {
        match ResourceName::new(name) {
            Ok(name) => {
                self.resources.insert(name, limit);
                self
            }
            Err(error) => self.wrong(error),
        }
    }

    /// Allows targets to run, by the beginning of their name up to a dot, or by the whole of it
    /// ([how](PackagePrefixClassPolicy)). No target may run unless this is called; another call adds to it.
    pub fn allow<E: Into<String>>(mut self, targets: impl IntoIterator<Item = E>) -> Self {
        self.allowed.extend(targets.into_iter().map(Into::into));
        self.policy = Some(Arc::new(PackagePrefixClassPolicy::allow(self.allowed.iter())));
        self
    }

    /// Sets the policy that decides which targets may run, in place of [`allow`](Self::allow): the last of these calls
    /// holds.
    pub fn class_policy(mut self, policy: impl ClassPolicy) -> Self {
        self.policy = Some(Arc::new(policy));
        self.allowed.clear();
        self
    }

    /// Sets the resolver that finds beans elsewhere, such as in a container, and not among those that were registered.
    pub fn bean_resolver(mut self, resolver: impl BeanResolver) -> Self {
        self.resolver_of_beans = Some(Arc::new(resolver));
        self
    }

    /// Sets the policy that may refuse or delay the retry of a failed job.
    pub fn retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Arc::new(policy);
        self
    }

    /// Sets the strategy that protects the services which jobs call.
    pub fn resilience(mut self, strategy: impl ResilienceStrategy) -> Self {
        self.resilience = Some(Arc::new(strategy));
        self
    }

    /// Sets the sanitizer that makes error text fit to be stored, logged and published.
    pub fn error_sanitizer(mut self, sanitizer: impl ErrorSanitizer) -> Self {
        self.sanitizer = Some(Arc::new(sanitizer));
        self
    }

    /// Sets the executor that attempts run on.
    pub fn executor(mut self, executor: impl ExecutorProvider) -> Self {
        self.executor = Some(Arc::new(executor));
        self
    }

    /// Sets the coordinator that notifies other nodes of new work. The default is the store's own, if it has one.
    pub fn cluster(mut self, coordinator: impl ClusterCoordinator) -> Self {
        self.cluster = Some(Arc::new(coordinator));
        self
    }

    /// Sets the coordinator that lets one node of many do a start-up task. The default takes a lock in the store.
    pub fn startup_coordinator(mut self, coordinator: impl StartupCoordinator) -> Self {
        self.startup = Some(Arc::new(coordinator));
        self
    }

    /// Sets the resolver that turns calls into payloads and back.
    pub fn invocation_resolver(mut self, resolver: impl JobInvocationResolver) -> Self {
        self.invocation = Arc::new(resolver);
        self
    }

    /// Sets the provider of this node's name.
    pub fn identity(mut self, identity: impl NodeIdentityProvider) -> Self {
        self.identity = Arc::new(identity);
        self
    }

    /// Sets the resolver that names the caller of a submission.
    pub fn caller_principal(mut self, resolver: impl CallerPrincipalResolver) -> Self {
        self.principal = Some(Arc::new(resolver));
        self
    }

    /// Sets the resolver of the trace that a submission belongs to. Without it, a job that a body enqueues belongs to
    /// the trace of that body.
    pub fn trace_parent(mut self, resolver: impl TraceParentResolver) -> Self {
        self.trace = Some(Arc::new(resolver));
        self
    }

    /// Sets the sink for the engine's metrics.
    pub fn metrics(mut self, metrics: impl MetricsSink) -> Self {
        self.metrics = Metrics::new(metrics);
        self
    }

    /// Sets the strategy that decides how long the poller waits.
    pub fn polling_strategy(mut self, strategy: impl PollingStrategy) -> Self {
        self.strategy = Some(Box::new(strategy));
        self
    }

    /// Sets the clock by which circuit breakers and rate limits measure time, in place of the system's: for tests that
    /// travel in time. It never goes backwards. The store decides what is due, by a clock of its own.
    pub fn monotonic_clock(mut self, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.monotonic = Some(Arc::new(clock));
        self
    }

    /// Adds a hook that is called before and after start and stop.
    pub fn hook(mut self, hook: impl SchedulerLifecycleHook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Adds a listener that receives every event.
    pub fn listener(self, listener: impl JobEventListener) -> Self {
        self.events.add(Arc::new(listener));
        self
    }

    /// Joins the cluster and begins to work.
    ///
    /// # Cancellation safety
    /// If the future is dropped, the node stops.
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

    /// Joins the cluster, and works only step by step, as it is called: see [`Stepper`].
    ///
    /// # Errors
    /// See [`StartError`]: each says what to do.
    pub async fn start_stepping(self) -> Result<Stepper, StartError> {
        self.check()?;
        install_hook();
        Stepper::start(self).await
    }

    /// A [client](crate::Ratchet::client) with these options and plug points, that runs nothing: for a process that only
    /// submits and controls jobs, and needs other settings than the defaults.
    ///
    /// ```
    /// use ratchet_core::Ratchet;
    ///
    /// # fn example(store: ratchet_store_memory::MemoryStore) -> Result<(), ratchet_core::StartError> {
    /// let client = Ratchet::builder(store)
    ///     .configure(|options| options.limits.payload_bytes = 1024 * 1024)
    ///     .client()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Options out of range, or a name that no store takes.
    pub fn client(self) -> Result<Client, StartError> {
        self.check_options()?;
        Ok(self.into_client())
    }

    pub(super) fn into_client(self) -> Client {
        let plugs = self.plugs(|| Arc::new(AllowAll));
        Client::new(Parts {
            store: plugs.metrics.measured(self.store),
            options: self.options,
            plugs,
            registry: Arc::new(self.registry),
            stop: Arc::new(|_| false),
            bell: Arc::default(),
            of_node: false,
            alarm: Arc::default(),
        })
    }

    /// The replaceable parts of every process, with this policy if none was set.
    pub(super) fn plugs(&self, policy: impl FnOnce() -> Arc<dyn ClassPolicy>) -> Arc<Plugs> {
        let cluster = self.cluster.clone().or_else(|| self.store.coordinator());
        Arc::new(Plugs {
            policy: self.policy.clone().unwrap_or_else(policy),
            sanitizer: self.sanitizer(),
            cluster: cluster.unwrap_or_else(|| Arc::new(NoOpClusterCoordinator::default())),
            resolver: Arc::clone(&self.invocation),
            principal: self.principal.clone(),
            trace: self.trace.clone(),
            metrics: self.metrics.clone(),
            events: self.events.clone(),
        })
    }

    pub(super) fn sanitizer(&self) -> Arc<dyn ErrorSanitizer> {
        self.sanitizer.clone().unwrap_or_else(|| Arc::new(DefaultErrorSanitizer::new(&self.options.security)))
    }

    fn check_options(&self) -> Result<(), StartError> {
        if let Some(error) = &self.wrong {
            return Err(error.clone().into());
        }
        self.options.validate()?;
        maintenance::check(&self.options.maintenance)?;
        Ok(())
    }

    fn check(&self) -> Result<(), StartError> {
        self.check_options()?;
        if let Some(target) = &self.claimed_twice {
            return Err(StartError::TwoServices(target.clone()));
        }
        self.registry.check()?;
        self.registry.breaker_profiles()?;
        // The beans of a container may change while the node runs; those that are registered here may not.
        let orphan = self.registry.without_bean(&self.beans).filter(|_| self.resolver_of_beans.is_none());
        if let Some(target) = orphan {
            return Err(StartError::NoBean(target.clone()));
        }
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

    /// The resource limits that were set.
    pub(super) fn resources(&mut self) -> Result<Resources, InvalidName> {
        Ok(Resources {
            store: Arc::clone(&self.store),
            limits: std::mem::take(&mut self.resources),
            retry_delay: self.options.retry.permit_delay,
            node: self.label()?,
        })
    }

    /// The label of this node.
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

    pub(super) fn resilience_or_default(&mut self) -> Result<Arc<dyn ResilienceStrategy>, TwoProfiles> {
        let breakers = || -> Arc<dyn ResilienceStrategy> {
            let breakers = CircuitBreakers::new(self.options.breaker.clone());
            match self.monotonic.clone() {
                Some(clock) => Arc::new(breakers.with_clock(move || clock())),
                None => Arc::new(breakers),
            }
        };
        let strategy: Arc<dyn ResilienceStrategy> = self.resilience.take().unwrap_or_else(breakers);
        for (service, profile) in self.registry.breaker_profiles()? {
            strategy.declare(service, profile);
        }
        Ok(strategy)
    }

    /// The clock of rate limits.
    pub(super) fn rate_clock(&self) -> RateClock {
        match self.monotonic.clone() {
            Some(clock) => Arc::new(move || clock().into()),
            None => Arc::new(tokio::time::Instant::now),
        }
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

/// The policy of a process that only submits: it allows every target, since nothing runs here.
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
