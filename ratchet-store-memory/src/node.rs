//! Nodes, leases and recovery.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::NodeStore;
use ratchet_api::{
    Beat, BeatReply, Fence, JobClaim, JobStatus, Node, NodeInfo, Owner, ParkedOn, Pulse, StoreResult,
    Timestamp, whole_millis,
};

use crate::MemoryStore;
use crate::parking::Room;
use crate::state::{Row, State};

#[async_trait]
impl NodeStore for MemoryStore {
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        Ok(Box::new(self.clone()))
    }

    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()> {
        self.transaction(|state, now| {
            let joined = Node::joined(node.clone(), now, lease);
            state.nodes.entry(node.owner.clone()).or_insert(joined);
        });
        Ok(())
    }

    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply> {
        Ok(self.transaction(|state, now| state.beat(beat, now)))
    }

    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        Ok(self.transaction(|state, now| state.recover(dead, to, limit, now)))
    }

    async fn leave(&self, owner: &Owner) -> StoreResult<bool> {
        Ok(self.transaction(|state, _| {
            let free = !state.working_owners().contains(owner);
            if free {
                state.nodes.remove(owner);
            }
            free
        }))
    }

    async fn nodes(&self) -> StoreResult<Vec<Node>> {
        Ok(self.transaction(|state, _| {
            let mut nodes: Vec<_> = state.nodes.values().cloned().collect();
            nodes.sort_by_key(|node| node.started_at);
            nodes
        }))
    }

    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| {
            let working = state.working_owners();
            let before = state.nodes.len();
            state
                .nodes
                .retain(|owner, node| working.contains(owner) || now.since(node.lease_until) <= retention);
            (before - state.nodes.len()) as u64
        }))
    }

    async fn clock_went_back(&self, by: Duration, within: Duration, limit: usize) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| state.mend_times(now, by, within, limit)))
    }
}

impl State {
    /// Owners that hold jobs.
    fn working_owners(&self) -> BTreeSet<Owner> {
        let running = self.jobs.values().filter(|row| row.job.status == JobStatus::Running);
        running.filter_map(|row| row.job.picked_by.clone()).collect()
    }

    fn beat(&mut self, beat: &Beat, now: Timestamp) -> BeatReply {
        let Some(node) = self.nodes.get_mut(&beat.owner).filter(|node| !node.reaped) else {
            return BeatReply::refused(now);
        };
        let since_last = now.as_millis() - node.heartbeat_at.as_millis();
        let goes_on = (0..=whole_millis(beat.gap)).contains(&since_last) && node.beat_gap <= beat.gap;
        node.beating_since = if goes_on { node.beating_since } else { now };
        node.beat_gap = beat.gap;
        node.heartbeat_at = now;
        node.lease_until = now + beat.lease;
        node.skew_millis = beat.node_time.as_millis() - now.as_millis();
        node.running = beat.running;
        node.slots = beat.slots;
        node.draining = beat.draining;

        let mut reply = BeatReply::accepted(now);
        let working = self.working_owners();
        reply.holds_jobs = working.contains(&beat.owner);
        reply.dead = working.into_iter().filter(|owner| !self.is_alive(owner, now)).collect();
        reply.pulses = self.pulses(&reply.dead, now);
        reply.cancel_requested = self
            .jobs
            .values()
            .filter(|row| row.cancel_requested && row.is_held_by(&beat.owner))
            .map(|row| row.job.spec.id)
            .collect();
        let open = |row: &&Row| row.is_unblocked() && !self.paused_queues.contains(&row.job.spec.queue);
        let mut room = Room::of(self, &beat.owner, now);
        let due = |row: &Row| row.job.scheduled_time <= now;
        reply.due_work = self.jobs.values().filter(open).any(|row| due(row) && room.take(&row.job));
        let suspect = |row: &Row| matches!(row.job.parked_on, Some(ParkedOn::Suspect { .. }));
        reply.suspects = self.jobs.values().filter(open).any(|row| due(row) && suspect(row));
        reply.next_due = self
            .jobs
            .values()
            .filter(open)
            .filter(|row| !due(row) && row.job.parked_on.is_none())
            .map(|row| row.job.scheduled_time)
            .min();
        reply.next_fire =
            self.active_masters().filter_map(|row| row.job.recurrence.as_ref()?.next_fire).min();
        reply
    }

    /// The beats that matter for these deaths.
    fn pulses(&self, dead: &[Owner], now: Timestamp) -> Vec<Pulse> {
        let longest =
            dead.iter().filter_map(|owner| self.nodes.get(owner)).map(|node| node.pulse().lease).max();
        let matters = |node: &&Node| {
            dead.contains(&node.info.owner) || node.lease_until > now - longest.unwrap_or_default()
        };
        match dead {
            [] => Vec::new(),
            _ => self.nodes.values().filter(matters).map(Node::pulse).collect(),
        }
    }

    /// Corrects times after the clock went back.
    fn mend_times(&mut self, now: Timestamp, by: Duration, within: Duration, limit: usize) -> u64 {
        for node in self.nodes.values_mut().filter(|node| node.heartbeat_at > now) {
            node.lease_until = now + node.pulse().lease;
            (node.heartbeat_at, node.beating_since) = (now, now);
        }
        let executions = &self.executions;
        let timed_at = |row: &Row| {
            let of_job = (row.job.spec.id, Fence::FIRST)..=(row.job.spec.id, row.job.fence);
            let recorded = executions.range(of_job).next_back().map(|(_, execution)| execution.recorded_at);
            row.retimed_at.or(recorded).unwrap_or(row.job.created_at)
        };
        let was_due = |row: &&mut Row| {
            let waits = matches!(row.job.status, JobStatus::Pending | JobStatus::Paused) && !row.is_master();
            let (due, timed) = (row.job.scheduled_time, timed_at(row));
            let latest = if timed > now { now + by + by } else { now + by };
            waits && due > now && due <= latest && !(now - within <= timed && timed <= now)
        };
        let mended = self.jobs.values_mut().filter(was_due).take(limit);
        let mend = |row: &mut Row| {
            row.job.scheduled_time = now.max(row.job.scheduled_time - by);
            row.retimed_at = Some(now);
        };
        mended.map(mend).count() as u64
    }

    fn recover(&mut self, dead: &[Owner], to: &Owner, limit: usize, now: Timestamp) -> Vec<JobClaim> {
        if !self.is_alive(to, now) {
            return Vec::new();
        }
        let dead: BTreeSet<_> = dead.iter().filter(|owner| !self.is_alive(owner, now)).collect();
        let orphaned = self.jobs.values_mut().filter_map(|row| {
            let robbed = row.job.picked_by.clone().filter(|by| dead.contains(by))?;
            (row.job.status == JobStatus::Running).then_some((row, robbed))
        });
        let mut claims = Vec::new();
        for (row, robbed) in orphaned.take(limit) {
            row.enter(JobStatus::Running);
            row.job.picked_by = Some(to.clone());
            claims.push(row.claim(now));
            if let Some(node) = self.nodes.get_mut(&robbed) {
                node.reaped = true;
            }
        }
        claims
    }
}
