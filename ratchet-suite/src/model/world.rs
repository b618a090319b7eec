//! The real engine beside the model: every step happens in both, and then they are compared.

mod body;
mod look;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use ratchet_api::options::RatchetOptions;
use ratchet_api::store::JobStore;
use ratchet_api::{
    BusinessKey, Condition, Due, Edge, IdempotencyKey, Inserted, JobId, JobPayload, JsonText, ManualClock,
    Needs, NewJob, QueueName, ResourceLimit, ResourceName, StoreError, Submission, SubmitError,
};
use ratchet_core::{Call, Client, Enqueue, JobContext, JobHandle, Ratchet, Stepper};

use super::life::{Answer, Life, PERMIT_DELAY};
use super::step::{End, NODES, On, Order, Run, Step, Target};
use body::{Body, Switch, Told};

/// The timeout of a body that hangs, in real time.
const TIME_LIMIT: Duration = Duration::from_millis(2);

/// A difference between model and engine, or a failed call.
type Problem = String;

/// A store with two nodes, and the model of their state.
pub(crate) struct World {
    store: Arc<dyn JobStore>,
    clock: ManualClock,
    /// The prefix of queue, keys and resource, which keeps sequences on one store apart.
    name: String,
    life: Mutex<Life>,
    nodes: OnceLock<Vec<Stepper>>,
    breaker_open: Arc<AtomicBool>,
    told: [Told; NODES],
    /// The first problem that a body found.
    problem: Mutex<Option<Problem>>,
    /// The version of each job up to which its history was compared.
    compared: Mutex<BTreeMap<usize, i64>>,
}

impl World {
    /// Creates a world whose nodes have no jobs. No other sequence on this store may have the same `name`.
    pub(crate) async fn new(store: Arc<dyn JobStore>, clock: ManualClock, name: String) -> Arc<Self> {
        let world = Arc::new(Self {
            life: Mutex::new(Life::new(clock.now())),
            store,
            clock,
            name,
            nodes: OnceLock::new(),
            breaker_open: Arc::default(),
            told: Default::default(),
            problem: Mutex::default(),
            compared: Mutex::default(),
        });
        let limit = world.life().limit;
        world.limit(limit).await.expect("the resource is made");
        let mut nodes = Vec::new();
        for node in 0..NODES {
            let bean = Body { world: Arc::downgrade(&world), node };
            let builder = Ratchet::builder_shared(Arc::clone(&world.store)).register(bean);
            let builder = builder.allow(["test."]);
            let builder = builder.resilience(Switch(Arc::clone(&world.breaker_open)));
            let builder =
                builder.listener(world.told[node].clone()).configure(|options| world.options(options));
            nodes.push(builder.start_stepping().await.expect("the node starts"));
        }
        let _ = world.nodes.set(nodes);
        world
    }

    /// Sets one slot, so that jobs run one after the other, and no jitter.
    fn options(&self, options: &mut RatchetOptions) {
        options.execution.queues.clear();
        options.execution.queues.entry(self.name.clone()).or_default().slots = 1;
        options.retry.jitter = false;
        // A canceled body of the model ends by itself, long before this.
        options.timeout.cancel_grace = Duration::from_secs(60);
    }

    /// Runs a sequence; an error names the step after which engine and model differ.
    pub(crate) async fn live_through(self: &Arc<Self>, steps: &[Step]) -> Result<(), Problem> {
        for (number, step) in (1..).zip(steps) {
            self.step(step, None).await.map_err(|problem| format!("after step {number}: {problem}"))?;
        }
        self.compare_all().await
    }

    /// Stops the nodes. Jobs that have not run stay unowned.
    pub(crate) async fn remove(self: Arc<Self>) {
        let nodes = Arc::into_inner(self).and_then(|mut world| world.nodes.take());
        for node in nodes.into_iter().flatten() {
            node.stop().await.expect("the node leaves");
        }
    }

    /// Takes one step in both worlds, and compares them.
    fn step<'a>(
        self: &'a Arc<Self>,
        step: &'a Step,
        within: Option<(&'a JobContext, usize)>,
    ) -> BoxFuture<'a, Result<(), Problem>> {
        Box::pin(async move {
            match step {
                Step::Submit(order) => self.submit(order, None).await?,
                Step::Replace(old, order) => match self.pick(*old) {
                    Some(old) => self.submit(order, Some(old)).await?,
                    None => self.submit(order, None).await?,
                },
                Step::Enqueue(order) => match within {
                    Some((ctx, job)) => self.enqueue(order, ctx, job).await?,
                    None => self.submit(order, None).await?,
                },
                Step::Cancel(_) | Step::Pause(_) | Step::Resume(_) | Step::Retry(_) => {
                    self.steer(step).await?;
                }
                Step::Run(node) => self.run(*node).await?,
                Step::Advance(by) => {
                    self.clock.advance(*by);
                    self.life().now = self.clock.now();
                }
                Step::Queue { paused } => {
                    self.store.set_queue_paused(&self.queue(), *paused).await.map_err(trouble)?;
                    self.life().queue_paused = *paused;
                }
                Step::Breaker { open } => {
                    self.breaker_open.store(*open, Ordering::SeqCst);
                    self.life().breaker_open = *open;
                }
                Step::Limit(limit) => {
                    self.limit(*limit).await.map_err(trouble)?;
                    self.life().limit = *limit;
                }
            }
            self.compare().await
        })
    }

    async fn run(&self, node: usize) -> Result<(), Problem> {
        let before = self.life().attempts_of(node);
        let attempts = self.nodes()[node].run_due().await.map_err(trouble)?;
        if let Some(problem) = lock(&self.problem).take() {
            return Err(problem);
        }
        let mut life = self.life();
        if let Some(job) = life.next_body(node) {
            return Err(format!("job {job} did not run"));
        }
        same("bodies of one look", &(life.attempts_of(node) - before), &attempts)
    }

    /// Begins a body; returns its index in the model, and the script of this run.
    fn enter(&self, node: usize, ctx: &JobContext) -> Result<(usize, Run), Problem> {
        let mut life = self.life();
        let job = life.next_body(node).ok_or("a body runs although nothing is due")?;
        same("the job that runs", &life.jobs[job].id, &ctx.job_id())?;
        same("the attempt that a body sees", &(life.jobs[job].attempts + 1), &ctx.attempt())?;
        same("the fence that a body sees", &life.jobs[job].version, &ctx.fence().version())?;
        let limited = life.jobs[job].order.is_limited();
        let mut run = life.take_run(job).unwrap_or(Run { meanwhile: Vec::new(), end: End::Succeed });
        if limited {
            run.meanwhile.clear();
        }
        Ok((job, run))
    }

    async fn steer(&self, step: &Step) -> Result<(), Problem> {
        let (Step::Cancel(pick) | Step::Pause(pick) | Step::Resume(pick) | Step::Retry(pick)) = step else {
            return Ok(());
        };
        let Some(job) = self.pick(*pick) else { return Ok(()) };
        let id = self.life().jobs[job].id;
        let user = self.user();
        let answer = match step {
            Step::Cancel(_) => user.cancel(id, "not needed").await,
            Step::Pause(_) => user.pause(id).await,
            Step::Resume(_) => user.resume(id).await,
            _ => user.retry(id).await,
        };
        let mut life = self.life();
        let expected = match step {
            Step::Cancel(_) => life.cancel(job),
            Step::Pause(_) => life.pause(job),
            Step::Resume(_) => life.resume(job),
            _ => life.retry(job),
        };
        same("the answer", &expected, &answer.map_err(trouble)?)
    }

    async fn submit(&self, order: &Order, replaces: Option<usize>) -> Result<(), Problem> {
        let order = self.known_parents(order);
        let old = replaces.map(|old| self.life().jobs[old].id);
        let by_builder = order.parents.is_empty() && matches!(order.target, Target::Known | Target::Guarded);
        let (id, answer) = match by_builder {
            true => answer(self.describe(self.user().enqueue(call(&order)), &order, old).submit().await)?,
            false => self.insert(&order, old).await?,
        };
        let id = id.unwrap_or_else(JobId::generate);
        // A store does not compare calls with one idempotency key; a client does.
        let mismatch = self.life().mismatch(&order).filter(|_| by_builder);
        let expected = match mismatch {
            Some(first) => Answer::Mismatch(first),
            None => self.life().submit(id, order, replaces),
        };
        same("the answer", &expected, &answer)
    }

    async fn enqueue(&self, order: &Order, ctx: &JobContext, by: usize) -> Result<(), Problem> {
        let mut order = order.clone();
        // Not used here: it is an instant computed at this call, but the job is stored later, with the outcome.
        order.expires = None;
        (order.parents, order.target) = (Vec::new(), Target::Known);
        let handle = self.describe(ctx.enqueue(call(&order)), &order, None).submit().await;
        let (mismatch, answer) = (self.life().mismatch(&order), answer(handle));
        match (mismatch, answer?) {
            (Some(first), (_, answer)) => same("the answer", &Answer::Mismatch(first), &answer),
            (None, (Some(id), _) | (None, Answer::Existing(id))) => {
                self.life().enqueue(by, id, order);
                Ok(())
            }
            (None, (None, answer)) => Err(format!("a body cannot enqueue: {answer:?}")),
        }
    }

    fn describe(&self, job: Enqueue<()>, order: &Order, replaces: Option<JobId>) -> Enqueue<()> {
        let mut job = job.queue(&self.name).priority(order.priority).delay(order.delay);
        job = job.max_retries(order.max_retries).backoff(order.backoff);
        if let Some(expires) = order.expires {
            job = job.expires_at(self.clock.now() + expires);
        }
        if let Some(key) = order.business_key {
            job = job.business_key(self.key(key));
        }
        if let Some(key) = order.idempotency_key {
            job = job.idempotency_key(self.key(key));
        }
        if order.resource {
            job = job.resource(&self.name);
        }
        if order.is_limited() {
            job = job.timeout(TIME_LIMIT);
        }
        match replaces {
            Some(old) => job.replacing(old),
            None => job,
        }
    }

    /// Stores jobs that the builder cannot describe: with parents, or with a call that a client would refuse.
    async fn insert(&self, order: &Order, old: Option<JobId>) -> Result<(Option<JobId>, Answer), Problem> {
        let (target, method) = match order.target {
            Target::Known => ("test.Body", "run"),
            Target::Guarded => ("test.Body", "guarded"),
            Target::Unknown => ("test.Nobody", "run"),
            Target::Denied => ("evil.Body", "run"),
        };
        let payload = JobPayload::new(target, method, &JsonText::from_stored("[]")).map_err(trouble)?;
        let mut job = NewJob::new(payload);
        job.due = Due::After(order.delay);
        let spec = &mut job.spec;
        (spec.priority, spec.queue) = (order.priority, self.queue());
        (spec.max_retries, spec.backoff) = (order.max_retries, order.backoff);
        spec.expires_at = order.expires.map(|expires| self.clock.now() + expires);
        spec.business_key = order.business_key.map(|key| self.business_key(key));
        spec.idempotency_key = order.idempotency_key.map(|key| self.idempotency_key(key));
        spec.resource = order.resource.then(|| self.resource());
        spec.timeout = order.is_limited().then_some(TIME_LIMIT);
        if order.any_parent && !order.parents.is_empty() {
            job.needs = Needs::AtLeast(1);
        }
        let id = job.spec.id;
        let mut submission = Submission::single(job);
        submission.supersedes = old;
        submission.edges = order.parents.iter().map(|parent| self.edge(*parent, id)).collect();
        let inserted = self.store.insert(&[submission]).await.map_err(trouble)?.remove(0);
        Ok((
            Some(id),
            match inserted {
                Inserted::New => Answer::New,
                Inserted::Existing(first) => Answer::Existing(first),
                Inserted::KeyTaken { holder } => Answer::KeyTaken(holder),
                Inserted::Refused(_) | Inserted::AlreadyFired => Answer::Refused,
            },
        ))
    }

    fn edge(&self, (parent, on): (usize, On), child: JobId) -> Edge {
        let condition = match on {
            On::Success => Condition::Success,
            On::Failure => Condition::Failure,
        };
        Edge::new(self.life().jobs[parent].id, child, condition)
    }

    /// Returns the order with each parent once, as an index of the model.
    fn known_parents(&self, order: &Order) -> Order {
        let mut order = order.clone();
        let mut known = Vec::new();
        for (pick, on) in order.parents {
            match self.pick(pick) {
                Some(parent) if known.iter().all(|(other, _)| *other != parent) => known.push((parent, on)),
                _ => {}
            }
        }
        order.parents = known;
        order
    }

    async fn limit(&self, most: u32) -> Result<(), StoreError> {
        let mut limit = ResourceLimit::new(self.resource(), most);
        limit.retry_delay = PERMIT_DELAY;
        self.store.configure_resource(&limit).await
    }

    fn pick(&self, pick: usize) -> Option<usize> {
        pick.checked_rem(self.life().jobs.len())
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        lock(&self.life)
    }

    fn nodes(&self) -> &[Stepper] {
        self.nodes.get().expect("they started")
    }

    /// Returns the first node's client: a cancel tells its own bodies at once, and the other node finds out later.
    fn user(&self) -> &Client {
        self.nodes()[0].client()
    }

    fn queue(&self) -> QueueName {
        QueueName::new(&self.name).expect("a name")
    }

    fn resource(&self) -> ResourceName {
        ResourceName::new(&self.name).expect("a name")
    }

    fn key(&self, key: u8) -> String {
        format!("{} {key}", self.name)
    }

    fn business_key(&self, key: u8) -> BusinessKey {
        BusinessKey::new(self.key(key)).expect("a key")
    }

    fn idempotency_key(&self, key: u8) -> IdempotencyKey {
        IdempotencyKey::new(self.key(key)).expect("a key")
    }
}

fn call(order: &Order) -> Call<()> {
    match order.target {
        Target::Guarded => Body::job().guarded(),
        _ => Body::job().run(),
    }
}

fn answer(submitted: Result<JobHandle<()>, SubmitError>) -> Result<(Option<JobId>, Answer), Problem> {
    match submitted {
        Ok(handle) if handle.is_duplicate() => Ok((None, Answer::Existing(handle.id()))),
        Ok(handle) => Ok((Some(handle.id()), Answer::New)),
        Err(SubmitError::KeyTaken { holder, .. }) => Ok((None, Answer::KeyTaken(holder))),
        Err(SubmitError::IdempotencyMismatch { holder, .. }) => Ok((None, Answer::Mismatch(holder))),
        Err(SubmitError::Refused(_)) => Ok((None, Answer::Refused)),
        Err(other) => Err(other.to_string()),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), Problem> {
    match expected == found {
        true => Ok(()),
        false => Err(format!("{what}: the model says {expected:?}, the store {found:?}")),
    }
}

fn trouble(error: impl std::fmt::Display) -> Problem {
    error.to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
