//! The rules that several operations share: endings, edges, batches.

use std::time::Duration;

use ratchet_api::{BatchProgress, EdgeState, Ending, JobId, JobStatus, Recorded, StoreResult, Timestamp};

use super::Unit;
use crate::clock::instant;
use crate::codec::{EndingDoc, JobDoc, PermitId, date, job_id, millis};

impl JobDoc {
    /// Moves the job to another status and raises the fence, as every move does.
    pub(super) fn enter(&mut self, status: JobStatus) {
        self.status = status;
        self.fence = self.fence.saturating_add(1);
        self.paused_from = None;
        self.picked_at = None;
        if let Some(queue) = self.queue.as_mut() {
            queue.picked_by = None;
            queue.token = None;
        }
    }

    /// Counts down one parent or batch to wait for; the last one makes the job due, unless its own time is later. On an
    /// ended job it only keeps the count, for a retry that revives it.
    fn lower_blocked(&mut self, now: Timestamp, led_to: &mut Recorded) {
        if self.blocked_by == 0 {
            return;
        }
        self.blocked_by -= 1;
        if self.blocked_by == 0 && !self.visible_status().is_terminal() {
            self.scheduled_time = date(instant(self.scheduled_time).max(now));
            led_to.released.push(self.job_id());
        }
    }
}

impl Unit<'_> {
    /// Ends a job: frees what it holds, counts it in its batch, decides its edges and cascades.
    pub(super) async fn end(
        &mut self,
        id: JobId,
        status: JobStatus,
        ending: Ending,
        led_to: &mut Recorded,
    ) -> StoreResult<()> {
        self.load_consequences(&[id]).await?;
        led_to.batch = self.settle(id, status, &ending, led_to);
        let hopeless = self.decide_open_edges(id, led_to)?;
        self.cancel_hopeless(hopeless, led_to).await
    }

    /// Cancels jobs that can no longer be released, and their dependents, nearest first. One read per generation.
    pub(super) async fn cancel_hopeless(
        &mut self,
        mut generation: Vec<JobId>,
        led_to: &mut Recorded,
    ) -> StoreResult<()> {
        let ending = Ending::at(self.now);
        while !generation.is_empty() {
            self.load_consequences(&generation).await?;
            let mut next = Vec::new();
            for id in generation {
                self.settle(id, JobStatus::Canceled, &ending, led_to);
                next.extend(self.decide_open_edges(id, led_to)?);
            }
            generation = next;
        }
        Ok(())
    }

    /// Reads everything that the end of these jobs may affect.
    pub(super) async fn load_consequences(&mut self, ids: &[JobId]) -> StoreResult<()> {
        let with_edges: Vec<_> =
            ids.iter().copied().filter(|id| self.job(*id).is_some_and(|job| job.edge_count > 0)).collect();
        let batches: Vec<_> = ids.iter().filter_map(|id| self.job(*id)?.spec.batch).map(job_id).collect();
        self.load_edges_from(with_edges.iter().copied()).await?;
        self.load_batches(batches.iter().copied()).await?;
        let children: Vec<_> =
            with_edges.iter().flat_map(|id| self.edges_from(*id)).map(|edge| edge.child()).collect();
        self.load_jobs(children.into_iter().chain(batches)).await
    }

    /// Ends one job, as far as it concerns itself and its batch. Returns the batch's progress.
    fn settle(
        &mut self,
        id: JobId,
        status: JobStatus,
        ending: &Ending,
        led_to: &mut Recorded,
    ) -> Option<BatchProgress> {
        self.free_permits(id);
        let job = self.job_mut(id)?;
        let was_dead_letter = job.paused_from == Some(JobStatus::Failed);
        job.enter(status);
        job.queue = None;
        job.set_aside = None;
        job.ending = Some(EndingDoc::from(ending));
        let batch = job.spec.batch.map(job_id).filter(|_| !was_dead_letter)?;
        self.count_in_batch(batch, status, ending.duration().unwrap_or_default());
        self.complete_batch(batch, led_to)
    }

    /// Frees the permits of a job that leaves RUNNING.
    pub(super) fn free_permits(&mut self, id: JobId) {
        let Some(job) = self.job_mut(id) else { return };
        let held = job.queue.as_mut().map(|queue| std::mem::take(&mut queue.permits)).unwrap_or_default();
        let job = job.id;
        self.freed.extend(held.into_iter().map(|resource| PermitId { resource, job }));
    }

    /// Decides the open edges of an ended job. Returns the children that must be canceled.
    pub(super) fn decide_open_edges(
        &mut self,
        parent: JobId,
        led_to: &mut Recorded,
    ) -> StoreResult<Vec<JobId>> {
        let Some(status) = self.job(parent).map(JobDoc::decides_as) else { return Ok(Vec::new()) };
        let mut decisions = Vec::new();
        for edge in self.edges_from(parent) {
            if edge.state == EdgeState::Open {
                let decided = edge.read().decided_by(status).unwrap_or(EdgeState::Refused);
                decisions.push((edge.child(), decided));
            }
        }
        let decide = |(child, decided)| self.decide(parent, child, decided, led_to);
        Ok(decisions.into_iter().filter_map(decide).collect())
    }

    /// Decides one open edge. Returns the child if it must be canceled.
    pub(super) fn decide(
        &mut self,
        parent: JobId,
        child: JobId,
        decided: EdgeState,
        led_to: &mut Recorded,
    ) -> Option<JobId> {
        let edge = &mut self.edges.get_mut(&(parent, child))?.doc;
        if edge.state != EdgeState::Open {
            return None;
        }
        edge.state = decided;
        let now = self.now;
        let job = self.job_mut(child)?;
        job.open_parents = job.open_parents.saturating_sub(1);
        if decided == EdgeState::Satisfied {
            job.lower_blocked(now, led_to);
        }
        if job.visible_status().is_terminal() {
            return None;
        }
        // Two parents of one generation may both refuse; the child is canceled once.
        let hopeless = job.open_parents < job.blocked_by && !job.refused;
        hopeless.then(|| {
            job.refused = true;
            led_to.canceled.push(child);
            child
        })
    }

    fn count_in_batch(&mut self, batch: JobId, status: JobStatus, ran_for: Duration) {
        if let Some(held) = self.batches.get_mut(&batch) {
            match status {
                JobStatus::Succeeded => held.doc.completed = held.doc.completed.saturating_add(1),
                _ => held.doc.failed = held.doc.failed.saturating_add(1),
            }
            held.doc.child_execution_ms = held.doc.child_execution_ms.saturating_add(millis(ran_for));
        }
    }

    /// Completes a batch, once, if its progress is complete, and releases its parent. Returns the progress.
    pub(super) fn complete_batch(&mut self, batch: JobId, led_to: &mut Recorded) -> Option<BatchProgress> {
        let now = self.now;
        let held = self.batches.get_mut(&batch)?;
        let progress = held.doc.progress();
        if progress.is_complete() && held.doc.completed_at.is_none() {
            held.doc.completed_at = Some(date(now));
            if let Some(parent) = self.job_mut(batch) {
                parent.open_parents = parent.open_parents.saturating_sub(1);
                parent.lower_blocked(now, led_to);
            }
        }
        Some(progress)
    }
}
