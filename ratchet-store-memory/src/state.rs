//! The data, and the rules that several operations share: ends, edges, batches.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use ratchet_api::{
    ArchivedJob, Batch, BatchId, BatchProgress, BusinessKey, DlqAlert, Edge, EdgeState, Ending, Execution,
    Fence, Fingerprint, IdempotencyKey, Job, JobClaim, JobId, JobStatus, LockName, LogLine, Node, Owner,
    QueueName, Recorded, ResourceLimit, ResourceName, Timestamp,
};

/// Everything that is stored.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) jobs: BTreeMap<JobId, Row>,
    /// Every idempotency key that was ever used. None is removed.
    pub(crate) ledger: HashMap<IdempotencyKey, JobId>,
    /// The live job or active schedule that holds a business key.
    pub(crate) holders: HashMap<BusinessKey, JobId>,
    /// In the order they were stored.
    pub(crate) edges: Vec<Edge>,
    pub(crate) batches: BTreeMap<BatchId, BatchRow>,
    pub(crate) fires: BTreeSet<(JobId, Timestamp)>,
    pub(crate) nodes: BTreeMap<Owner, Node>,
    pub(crate) locks: HashMap<LockName, Lock>,
    pub(crate) resources: BTreeMap<ResourceName, ResourceLimit>,
    pub(crate) permits: BTreeSet<(ResourceName, JobId)>,
    pub(crate) paused_queues: BTreeSet<QueueName>,
    pub(crate) executions: BTreeMap<(JobId, Fence), Execution>,
    pub(crate) logs: BTreeMap<(JobId, u64), LogLine>,
    /// The number of lines ever written: a number is not given twice, so a reader who pages on misses none.
    pub(crate) log_lines: u64,
    pub(crate) alerts: Vec<DlqAlert>,
    pub(crate) alert_groups: HashMap<Fingerprint, AlertGroup>,
    pub(crate) archive: BTreeMap<JobId, ArchivedJob>,
}

/// A stored job.
pub(crate) struct Row {
    /// As stored: RUNNING also after a cancel was accepted.
    pub(crate) job: Job,
    /// Whether a cancel of the running job was accepted; the outcome will be CANCELED.
    pub(crate) cancel_requested: bool,
    /// Whether it was canceled because a parent refused, so that a retry of that parent brings it back.
    pub(crate) refused: bool,
    /// The end that a paused dead letter goes back to.
    pub(crate) set_aside: Option<Ending>,
    /// The fingerprint that groups dead letters.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// When its due time was changed because the clock went back.
    pub(crate) retimed_at: Option<Timestamp>,
    /// Why the row cannot be read.
    pub(crate) unreadable: Option<String>,
    /// Whether no claim can ever find it.
    pub(crate) unreachable: bool,
}

pub(crate) struct BatchRow {
    pub(crate) batch: Batch,
    pub(crate) child_execution: std::time::Duration,
}

pub(crate) struct Lock {
    pub(crate) holder: Option<Owner>,
    pub(crate) term: i64,
    /// When it was last taken or renewed.
    pub(crate) taken: Timestamp,
    pub(crate) expires: Timestamp,
}

pub(crate) struct AlertGroup {
    pub(crate) told_at: Timestamp,
    pub(crate) count: u64,
}

impl Row {
    pub(crate) fn new(job: Job) -> Self {
        Self {
            job,
            cancel_requested: false,
            refused: false,
            set_aside: None,
            fingerprint: None,
            retimed_at: None,
            unreadable: None,
            unreachable: false,
        }
    }

    /// The job as readers see it: canceled from the moment the cancel was accepted.
    pub(crate) fn view(&self) -> Job {
        let mut job = self.job.clone();
        job.status = self.status();
        job
    }

    /// The status of the job as readers see it.
    pub(crate) fn status(&self) -> JobStatus {
        if self.cancel_requested { JobStatus::Canceled } else { self.job.status }
    }

    /// The status by which the job's end decides edges, or would: a paused dead letter has failed, a canceled body has
    /// no say.
    pub(crate) fn decides_as(&self) -> JobStatus {
        self.job.paused_from.unwrap_or_else(|| self.status())
    }

    /// Whether this is a schedule, which is never claimed.
    pub(crate) fn is_master(&self) -> bool {
        self.job.recurrence.is_some()
    }

    /// Whether it could be claimed once its time has come.
    pub(crate) fn is_unblocked(&self) -> bool {
        self.job.status == JobStatus::Pending
            && self.job.blocked_by == 0
            && !self.is_master()
            && !self.unreachable
    }

    /// The claim of a running job.
    pub(crate) fn claim(&self, now: Timestamp) -> JobClaim {
        let mut claim = JobClaim::of(&self.view(), now);
        claim.corrupt.clone_from(&self.unreadable);
        claim
    }

    /// Gives the job to `owner`.
    pub(crate) fn pick(&mut self, owner: &Owner, now: Timestamp) -> JobClaim {
        self.enter(JobStatus::Running);
        self.job.picked_by = Some(owner.clone());
        self.job.picked_at = Some(now);
        self.claim(now)
    }

    /// Whether `owner` holds it.
    pub(crate) fn is_held_by(&self, owner: &Owner) -> bool {
        self.job.status == JobStatus::Running && self.job.picked_by.as_ref() == Some(owner)
    }

    /// Moves to another status; every such move raises the fence.
    pub(crate) fn enter(&mut self, status: JobStatus) {
        self.job.status = status;
        self.job.fence = self.job.fence.next();
        self.job.paused_from = None;
        if status != JobStatus::Running {
            self.job.picked_by = None;
            self.job.picked_at = None;
        }
        if status == JobStatus::Running || status.is_terminal() {
            self.job.parked_on = None;
        }
    }
}

impl State {
    pub(crate) fn is_alive(&self, owner: &Owner, now: Timestamp) -> bool {
        self.nodes.get(owner).is_some_and(|node| node.is_alive(now))
    }

    /// The live job that holds the key, unless it is `but`.
    pub(crate) fn holder(&self, key: Option<&BusinessKey>, but: Option<JobId>) -> Option<JobId> {
        self.holders.get(key?).copied().filter(|holder| Some(*holder) != but)
    }

    pub(crate) fn reserve_key(&mut self, id: JobId) {
        if let Some(key) = self.jobs.get(&id).and_then(|row| row.job.spec.business_key.clone()) {
            self.holders.insert(key, id);
        }
    }

    pub(crate) fn free_key(&mut self, id: JobId) {
        self.holders.retain(|_, holder| *holder != id);
    }

    /// Frees the permits of a job that leaves RUNNING, for whatever reason.
    pub(crate) fn free_permits(&mut self, id: JobId) {
        self.permits.retain(|(_, holder)| *holder != id);
    }

    /// Ends a job: frees everything that it holds, counts it in its batch, decides its edges, and runs the cascade.
    pub(crate) fn end(
        &mut self,
        id: JobId,
        status: JobStatus,
        ending: Ending,
        now: Timestamp,
        led_to: &mut Recorded,
    ) {
        led_to.batch = self.settle(id, status, ending, now, led_to);
        let hopeless = self.decide_open_edges(id, now, led_to);
        self.cancel_hopeless(hopeless, now, led_to);
    }

    /// Cancels jobs that can no longer be released, and their dependents, nearest first.
    pub(crate) fn cancel_hopeless(&mut self, hopeless: Vec<JobId>, now: Timestamp, led_to: &mut Recorded) {
        let mut hopeless = VecDeque::from(hopeless);
        while let Some(id) = hopeless.pop_front() {
            self.settle(id, JobStatus::Canceled, Ending::at(now), now, led_to);
            hopeless.extend(self.decide_open_edges(id, now, led_to));
        }
    }

    /// Ends one job, as far as it is only about itself and its batch. Returns the progress of the batch.
    fn settle(
        &mut self,
        id: JobId,
        status: JobStatus,
        ending: Ending,
        now: Timestamp,
        led_to: &mut Recorded,
    ) -> Option<BatchProgress> {
        let row = self.jobs.get_mut(&id)?;
        let was_dead_letter = row.job.paused_from == Some(JobStatus::Failed);
        let (batch, ran_for) = (row.job.spec.batch, ending.duration());
        row.enter(status);
        row.cancel_requested = false;
        row.set_aside = None;
        row.job.ending = Some(ending);
        self.free_key(id);
        self.free_permits(id);
        let batch = batch.filter(|_| !was_dead_letter)?;
        self.count_in_batch(batch, status, ran_for.unwrap_or_default());
        self.complete_batch(batch, now, led_to)
    }

    /// Decides the edges of an ended job that are still open. Returns the children that must be canceled for it.
    pub(crate) fn decide_open_edges(
        &mut self,
        parent: JobId,
        now: Timestamp,
        led_to: &mut Recorded,
    ) -> Vec<JobId> {
        let Some(status) = self.jobs.get(&parent).map(Row::decides_as) else { return Vec::new() };
        let open: Vec<_> = self
            .edges
            .iter()
            .filter(|edge| edge.parent == parent && edge.state == EdgeState::Open)
            .map(|edge| (edge.child, edge.decided_by(status).unwrap_or(EdgeState::Refused)))
            .collect();
        open.into_iter()
            .filter_map(|(child, decided)| self.decide(parent, child, decided, now, led_to))
            .collect()
    }

    /// Decides one open edge. Returns the child if it must be canceled for it.
    pub(crate) fn decide(
        &mut self,
        parent: JobId,
        child: JobId,
        decided: EdgeState,
        now: Timestamp,
        led_to: &mut Recorded,
    ) -> Option<JobId> {
        let is_it =
            |edge: &&mut Edge| edge.parent == parent && edge.child == child && edge.state == EdgeState::Open;
        self.edges.iter_mut().find(is_it)?.state = decided;
        let row = self.jobs.get_mut(&child)?;
        row.job.open_parents = row.job.open_parents.saturating_sub(1);
        if decided == EdgeState::Satisfied {
            row.lower_blocked(now, led_to);
        }
        if row.status().is_terminal() {
            return None;
        }
        // Only once: the child may be waiting to be canceled already because of another parent.
        let hopeless = row.job.open_parents < row.job.blocked_by && !row.refused;
        hopeless.then(|| {
            row.refused = true;
            led_to.canceled.push(child);
            child
        })
    }

    pub(crate) fn count_in_batch(&mut self, batch: BatchId, status: JobStatus, ran_for: std::time::Duration) {
        if let Some(row) = self.batches.get_mut(&batch) {
            match status {
                JobStatus::Succeeded => row.batch.progress.completed += 1,
                _ => row.batch.progress.failed += 1,
            }
            row.child_execution += ran_for;
        }
    }

    /// Completes a batch, once, if it is closed and every child has ended, and releases its parent. Returns its
    /// progress.
    pub(crate) fn complete_batch(
        &mut self,
        id: BatchId,
        now: Timestamp,
        led_to: &mut Recorded,
    ) -> Option<BatchProgress> {
        let row = self.batches.get_mut(&id)?;
        let progress = row.batch.progress;
        if progress.is_complete() && row.batch.completed_at.is_none() {
            row.batch.completed_at = Some(now);
            if let Some(parent) = self.jobs.get_mut(&id.parent()) {
                parent.job.open_parents = parent.job.open_parents.saturating_sub(1);
                parent.lower_blocked(now, led_to);
            }
        }
        Some(progress)
    }
}

impl Row {
    /// Counts one parent or batch less to wait for; the last one makes the job due, unless its own time is later. An
    /// ended job only keeps the count, for a retry that revives it.
    fn lower_blocked(&mut self, now: Timestamp, led_to: &mut Recorded) {
        if self.job.blocked_by == 0 {
            return;
        }
        self.job.blocked_by -= 1;
        if self.job.blocked_by == 0 && !self.status().is_terminal() {
            self.job.scheduled_time = self.job.scheduled_time.max(now);
            led_to.released.push(self.job.spec.id);
        }
    }
}
