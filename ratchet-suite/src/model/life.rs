//! The model: a minimal, pure implementation of the life cycle of jobs.

use std::cmp::Reverse;
use std::time::Duration;

use ratchet_api::{EdgeState, ExecutionResult, JobId, JobStatus, Timestamp};

use super::step::{End, NODES, On, Order, Target};

/// The delay of a job that the breaker turned back.
pub(crate) const BREAKER_DELAY: Duration = Duration::from_secs(7);
pub(crate) const PERMIT_DELAY: Duration = Duration::from_secs(5);
/// The waiting time that raises a priority by one.
const BOOST: Duration = Duration::from_secs(15 * 60);

/// The state of the modelled system.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) now: Timestamp,
    /// All jobs, in the order they were stored.
    pub(crate) jobs: Vec<Job>,
    pub(crate) queue_paused: bool,
    pub(crate) breaker_open: bool,
    pub(crate) limit: u32,
    /// The events of each node's attempts, in order.
    pub(crate) told: [Vec<(JobId, &'static str)>; NODES],
    nodes: [Node; NODES],
}

#[derive(Clone, Debug, Default)]
struct Node {
    busy: bool,
    attempts: usize,
}

/// A job of the model.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) order: Order,
    pub(crate) status: JobStatus,
    /// Whether a cancel of the running body was accepted.
    pub(crate) canceling: bool,
    pub(crate) paused_from: Option<JobStatus>,
    pub(crate) due: Timestamp,
    expires: Option<Timestamp>,
    pub(crate) attempts: u32,
    pub(crate) version: i64,
    pub(crate) has_error: bool,
    pub(crate) has_permit: bool,
    pub(crate) parked: Option<Parked>,
    pub(crate) superseded_by: Option<JobId>,
    /// Fence, result and failures so far, for every outcome that leaves a trace.
    pub(crate) history: Vec<(i64, ExecutionResult, u32)>,
    parents: Vec<Parent>,
    /// Whether it was canceled because it could no longer get the parents that it needs.
    refused: bool,
    runs: usize,
    /// The node that claimed it last.
    node: usize,
    /// The jobs that are stored together with its success.
    enqueued: Vec<(JobId, Order)>,
}

#[derive(Clone, Debug)]
struct Parent {
    job: usize,
    on: On,
    state: EdgeState,
}

/// The answer to a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    New,
    Existing(JobId),
    KeyTaken(JobId),
    /// The idempotency key belongs to a job of another method.
    Mismatch(JobId),
    Refused,
}

/// The thing that a parked job lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    OnMethod,
    OnResource,
}

/// The reason that a body does not run.
enum Stop {
    Expired,
    HandBack(Duration),
    Park(Parked),
}

impl Job {
    fn is_live(&self) -> bool {
        !self.status.is_terminal()
    }

    /// Returns the status that readers see.
    pub(crate) fn seen(&self) -> JobStatus {
        if self.canceling { JobStatus::Canceled } else { self.status }
    }

    /// Returns the number of parents that must still be satisfied.
    pub(crate) fn blocked_by(&self) -> usize {
        let needed = if self.order.any_parent { self.parents.len().min(1) } else { self.parents.len() };
        needed.saturating_sub(self.count(EdgeState::Satisfied))
    }

    /// Returns the number of parents that are not decided yet.
    pub(crate) fn open_parents(&self) -> usize {
        self.count(EdgeState::Open)
    }

    fn count(&self, state: EdgeState) -> usize {
        self.parents.iter().filter(|parent| parent.state == state).count()
    }

    fn enter(&mut self, status: JobStatus) {
        self.status = status;
        self.version += 1;
        self.paused_from = None;
        self.has_permit &= status == JobStatus::Running;
        if status == JobStatus::Running || status.is_terminal() {
            self.parked = None;
        }
    }

    fn record(&mut self, result: ExecutionResult, version: i64) {
        self.history.push((version, result, self.attempts));
    }
}

impl Life {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now,
            jobs: Vec::new(),
            queue_paused: false,
            breaker_open: false,
            limit: 1,
            told: Default::default(),
            nodes: Default::default(),
        }
    }

    /// Returns the live job with this business key.
    pub(crate) fn holder(&self, key: u8) -> Option<usize> {
        self.jobs.iter().position(|job| job.order.business_key == Some(key) && job.is_live())
    }

    /// Returns the first job that was ever submitted with this idempotency key.
    pub(crate) fn first_with(&self, key: u8) -> Option<JobId> {
        self.jobs.iter().find(|job| job.order.idempotency_key == Some(key)).map(|job| job.id)
    }

    /// Returns the holder of this order's idempotency key if its method is another one.
    pub(crate) fn mismatch(&self, order: &Order) -> Option<JobId> {
        let key = order.idempotency_key?;
        let first = self.jobs.iter().find(|job| job.order.idempotency_key == Some(key))?;
        (first.order.target != order.target).then_some(first.id)
    }

    pub(crate) fn submit(&mut self, id: JobId, order: Order, replaces: Option<usize>) -> Answer {
        if let Some(first) = order.idempotency_key.and_then(|key| self.first_with(key)) {
            return Answer::Existing(first);
        }
        let replaceable =
            |old: usize| matches!(self.jobs[old].status, JobStatus::Pending | JobStatus::Paused);
        if replaces.is_some_and(|old| !replaceable(old)) {
            return Answer::Refused;
        }
        let holder = order.business_key.and_then(|key| self.holder(key));
        if let Some(holder) = holder.filter(|holder| replaces != Some(*holder)) {
            return Answer::KeyTaken(self.jobs[holder].id);
        }
        if let Some(old) = replaces {
            self.jobs[old].superseded_by = Some(id);
            self.finish(old, JobStatus::Canceled);
        }
        self.store(id, order);
        Answer::New
    }

    fn store(&mut self, id: JobId, order: Order) {
        let edge = |(job, on): &(usize, On)| Parent { job: *job, on: *on, state: EdgeState::Open };
        let parents: Vec<Parent> = order.parents.iter().map(edge).collect();
        let ended: Vec<usize> = parents.iter().map(|parent| parent.job).collect();
        self.jobs.push(Job {
            id,
            status: JobStatus::Pending,
            canceling: false,
            paused_from: None,
            due: self.now + order.delay,
            expires: order.expires.map(|expires| self.now + expires),
            attempts: 0,
            version: 1,
            has_error: false,
            has_permit: false,
            parked: None,
            superseded_by: None,
            history: Vec::new(),
            parents,
            refused: false,
            runs: 0,
            node: 0,
            enqueued: Vec::new(),
            order,
        });
        for parent in ended {
            self.decide(parent);
        }
    }

    pub(crate) fn cancel(&mut self, job: usize) -> bool {
        if self.jobs[job].seen().is_terminal() {
            return false;
        }
        if self.jobs[job].status == JobStatus::Running {
            self.jobs[job].canceling = true;
            self.decide(job);
        } else {
            self.finish(job, JobStatus::Canceled);
        }
        true
    }

    pub(crate) fn pause(&mut self, job: usize) -> bool {
        let from = self.jobs[job].seen();
        let key_is_taken = || self.jobs[job].order.business_key.and_then(|key| self.holder(key)).is_some();
        match from {
            JobStatus::Paused => return true,
            JobStatus::Pending => {}
            JobStatus::Failed if !key_is_taken() => {}
            _ => return false,
        }
        self.jobs[job].enter(JobStatus::Paused);
        self.jobs[job].paused_from = Some(from);
        true
    }

    pub(crate) fn resume(&mut self, job: usize) -> bool {
        let job = &mut self.jobs[job];
        match job.paused_from {
            Some(from) => {
                job.enter(from);
                true
            }
            None => false,
        }
    }

    /// Revives a dead letter with the dependents that its failure had canceled: all of them or none.
    pub(crate) fn retry(&mut self, job: usize) -> bool {
        if self.jobs[job].status != JobStatus::Failed {
            return false;
        }
        let before = self.jobs.clone();
        let (now, revived) = (self.now, &mut self.jobs[job]);
        revived.enter(JobStatus::Pending);
        (revived.attempts, revived.has_error, revived.due) = (0, false, now);
        self.reopen(job);
        if self.some_key_is_held_twice() {
            self.jobs = before;
            return false;
        }
        true
    }

    fn reopen(&mut self, parent: usize) {
        for child in 0..self.jobs.len() {
            let job = &mut self.jobs[child];
            let refused = |edge: &&mut Parent| edge.job == parent && edge.state == EdgeState::Refused;
            let Some(edge) = job.parents.iter_mut().find(refused) else { continue };
            edge.state = EdgeState::Open;
            if job.refused && job.open_parents() >= job.blocked_by() {
                job.refused = false;
                job.enter(JobStatus::Pending);
                self.reopen(child);
            }
        }
    }

    fn some_key_is_held_twice(&self) -> bool {
        let held: Vec<u8> =
            self.jobs.iter().filter(|job| job.is_live()).filter_map(|job| job.order.business_key).collect();
        held.iter().enumerate().any(|(place, key)| held[..place].contains(key))
    }

    /// Returns how many bodies a node has begun so far.
    pub(crate) fn attempts_of(&self, node: usize) -> usize {
        self.nodes[node].attempts
    }

    /// Lets the node take due jobs, best first, until a body runs; returns its job.
    pub(crate) fn next_body(&mut self, node: usize) -> Option<usize> {
        while !self.nodes[node].busy {
            let best = self.best()?;
            self.jobs[best].enter(JobStatus::Running);
            self.jobs[best].node = node;
            match self.gates(best) {
                None => {
                    self.nodes[node].busy = true;
                    self.nodes[node].attempts += 1;
                    self.tell(best, "Started");
                    return Some(best);
                }
                Some(stop) => self.turn_back(best, &stop),
            }
        }
        None
    }

    fn best(&self) -> Option<usize> {
        let used = self.jobs.iter().filter(|job| job.has_permit).count();
        let lacks_nothing = |job: &Job| match job.parked {
            _ if job.expires.is_some_and(|at| at <= self.now) => true,
            None => true,
            Some(Parked::OnResource) => used < self.limit as usize,
            Some(Parked::OnMethod) => false,
        };
        let can = |job: &Job| {
            job.status == JobStatus::Pending
                && job.blocked_by() == 0
                && job.due <= self.now
                && lacks_nothing(job)
        };
        let waiting = (0..self.jobs.len()).filter(|job| !self.queue_paused && can(&self.jobs[*job]));
        waiting.min_by_key(|job| {
            let job = &self.jobs[*job];
            let boost = self.now.since(job.due).as_secs() / BOOST.as_secs();
            (Reverse(job.order.priority.ordinal() as u64 + boost), job.due, job.id)
        })
    }

    /// Applies the gates between a claim and its body, in order.
    fn gates(&mut self, job: usize) -> Option<Stop> {
        let used = self.jobs.iter().filter(|job| job.has_permit).count();
        let job = &mut self.jobs[job];
        if job.expires.is_some_and(|at| at <= self.now) {
            return Some(Stop::Expired);
        }
        if matches!(job.order.target, Target::Unknown | Target::Denied) {
            return Some(Stop::Park(Parked::OnMethod));
        }
        if job.order.target == Target::Guarded && self.breaker_open {
            return Some(Stop::HandBack(BREAKER_DELAY));
        }
        if job.order.resource {
            if used >= self.limit as usize {
                return Some(Stop::Park(Parked::OnResource));
            }
            job.has_permit = true;
        }
        None
    }

    fn turn_back(&mut self, job: usize, stop: &Stop) {
        let version = self.jobs[job].version;
        match stop {
            Stop::HandBack(delay) => self.hand_back(job, *delay),
            Stop::Park(on) => {
                self.jobs[job].enter(JobStatus::Pending);
                self.jobs[job].parked = Some(*on);
            }
            Stop::Expired => {
                self.jobs[job].record(ExecutionResult::Canceled, version);
                self.finish(job, JobStatus::Canceled);
            }
        }
    }

    /// Returns the script of the body's next run; `None` if it just succeeds.
    pub(crate) fn take_run(&mut self, job: usize) -> Option<super::step::Run> {
        let job = &mut self.jobs[job];
        job.runs += 1;
        job.order.runs.get(job.runs - 1).cloned()
    }

    /// Adds a job that is stored if the running body succeeds.
    pub(crate) fn enqueue(&mut self, by: usize, id: JobId, order: Order) {
        self.jobs[by].enqueued.push((id, order));
    }

    /// Ends a body and records its outcome.
    pub(crate) fn end(&mut self, job: usize, end: End) {
        self.nodes[self.jobs[job].node].busy = false;
        let enqueued = std::mem::take(&mut self.jobs[job].enqueued);
        let version = self.jobs[job].version;
        if self.jobs[job].canceling {
            self.jobs[job].record(ExecutionResult::Canceled, version);
            return self.finish(job, JobStatus::Canceled);
        }
        match end {
            End::Succeed => {
                self.jobs[job].record(ExecutionResult::Succeeded, version);
                self.jobs[job].has_error = false;
                self.tell(job, "Completed");
                self.finish(job, JobStatus::Succeeded);
                for (id, order) in enqueued {
                    self.submit(id, order, None);
                }
            }
            End::Snooze(delay) => {
                self.jobs[job].record(ExecutionResult::Snoozed, version);
                self.hand_back(job, delay);
            }
            End::DoNotRetry => self.dead_letter(job),
            End::RetryAfter(delay) => self.fail(job, Some(delay)),
            End::Fail | End::Panic | End::Hang => self.fail(job, None),
        }
    }

    fn fail(&mut self, job: usize, delay: Option<Duration>) {
        let failed = &mut self.jobs[job];
        let attempt = failed.attempts + 1;
        if attempt > failed.order.max_retries {
            return self.dead_letter(job);
        }
        failed.attempts = attempt;
        failed.has_error = true;
        failed.record(ExecutionResult::Failed, failed.version);
        let delay = delay.unwrap_or_else(|| failed.order.backoff.delay(attempt));
        self.tell(job, "Failed");
        self.tell(job, "Retrying");
        self.hand_back(job, delay);
    }

    fn dead_letter(&mut self, job: usize) {
        let failed = &mut self.jobs[job];
        failed.attempts += 1;
        failed.has_error = true;
        failed.record(ExecutionResult::Failed, failed.version);
        self.tell(job, "Failed");
        self.tell(job, "DeadLettered");
        self.finish(job, JobStatus::Failed);
    }

    fn hand_back(&mut self, job: usize, delay: Duration) {
        self.jobs[job].enter(JobStatus::Pending);
        self.jobs[job].due = self.now + delay;
    }

    fn finish(&mut self, job: usize, status: JobStatus) {
        self.jobs[job].enter(status);
        self.jobs[job].canceling = false;
        self.decide(job);
    }

    /// Decides the open edges that lead from a job, if it has ended, with the whole cascade.
    fn decide(&mut self, parent: usize) {
        let ended = &self.jobs[parent];
        let end = ended.paused_from.unwrap_or_else(|| ended.seen());
        if !end.is_terminal() {
            return;
        }
        for child in 0..self.jobs.len() {
            let (now, job) = (self.now, &mut self.jobs[child]);
            let was_blocked = job.blocked_by() > 0;
            let open = |edge: &&mut Parent| edge.job == parent && edge.state == EdgeState::Open;
            let Some(edge) = job.parents.iter_mut().find(open) else { continue };
            edge.state = match (edge.on, end) {
                (On::Success, JobStatus::Succeeded) | (On::Failure, JobStatus::Failed) => {
                    EdgeState::Satisfied
                }
                _ => EdgeState::Refused,
            };
            if job.seen().is_terminal() {
                continue;
            }
            if was_blocked && job.blocked_by() == 0 {
                job.due = job.due.max(now);
            } else if job.open_parents() < job.blocked_by() {
                job.refused = true;
                self.finish(child, JobStatus::Canceled);
            }
        }
    }

    fn tell(&mut self, job: usize, what: &'static str) {
        let job = &self.jobs[job];
        self.told[job.node].push((job.id, what));
    }
}
