//! A minimal model of waiting, with which a store must agree.

use std::collections::BTreeSet;

use ratchet_api::{Condition, Edge, EdgeState, Effect, End, JobId, JobStatus, Needs, Recorded, Submission};

use super::super::commit::{called_off, dead, succeeded};
use super::Dice;
use crate::fixture::job;

/// Jobs and their edges.
pub(super) struct Model {
    pub(super) jobs: Vec<Modelled>,
    edges: Vec<(usize, usize, Edge)>,
}

pub(super) struct Modelled {
    pub(super) id: JobId,
    pub(super) status: JobStatus,
    pub(super) blocked: u32,
    pub(super) open: u32,
}

impl Model {
    pub(super) fn random(dice: &mut Dice, size: usize) -> (Self, Submission) {
        let mut submission = Submission::default();
        let mut model = Self { jobs: Vec::new(), edges: Vec::new() };
        for child in 0..size {
            let mut new = job();
            let parents: BTreeSet<_> = (0..dice.below(4)).map(|_| dice.below(size)).collect();
            let parents: Vec<_> = parents.into_iter().filter(|parent| *parent < child).collect();
            if !parents.is_empty() && dice.below(2) == 0 {
                new.needs = Needs::AtLeast(1 + dice.below(parents.len()) as u32);
            }
            for parent in &parents {
                let condition = match dice.below(3) {
                    0 => Condition::Success,
                    1 => Condition::Failure,
                    _ => Condition::Custom("maybe".into()),
                };
                let edge = Edge::new(model.jobs[*parent].id, new.spec.id, condition);
                model.edges.push((*parent, child, edge.clone()));
                submission.edges.push(edge);
            }
            let (id, open) = (new.spec.id, parents.len() as u32);
            model.jobs.push(Modelled { id, status: JobStatus::Pending, blocked: new.needs.of(open), open });
            submission.jobs.push(new);
        }
        (model, submission)
    }

    pub(super) fn ids(&self) -> Vec<JobId> {
        self.jobs.iter().map(|job| job.id).collect()
    }

    pub(super) fn pick_claimable(&self, dice: &mut Dice) -> Option<usize> {
        let free = |at: &usize| self.jobs[*at].status == JobStatus::Pending && self.jobs[*at].blocked == 0;
        let free: Vec<_> = (0..self.jobs.len()).filter(free).collect();
        (!free.is_empty()).then(|| free[dice.below(free.len())])
    }

    /// Returns a random end, with a decision about some of the edges.
    pub(super) fn random_end(&self, at: usize, dice: &mut Dice) -> (End, Vec<Effect>) {
        let end = match dice.below(5) {
            0 => return (called_off(), vec![]),
            1 => dead("boom"),
            _ => succeeded(),
        };
        let mut effects = Vec::new();
        for (_, child, _) in self.edges.iter().filter(|(parent, ..)| *parent == at) {
            let child = self.jobs[*child].id;
            match dice.below(4) {
                0 => effects.push(Effect::Refuse(child)),
                1 => {}
                _ => effects.push(Effect::Satisfy(child)),
            }
        }
        (end, effects)
    }

    pub(super) fn end(&mut self, at: usize, end: &End, effects: &[Effect]) -> Recorded {
        let status = match end {
            End::Succeeded { .. } => JobStatus::Succeeded,
            End::DeadLetter { .. } => JobStatus::Failed,
            _ => JobStatus::Canceled,
        };
        self.jobs[at].status = status;
        let mut led_to = Recorded::default();
        let mut ended = vec![at];
        while let Some(parent) = ended.pop() {
            for index in 0..self.edges.len() {
                let (from, child, edge) = &mut self.edges[index];
                if *from != parent || edge.state != EdgeState::Open {
                    continue;
                }
                let asked = effects.iter().filter(|_| parent == at).find_map(|effect| match effect {
                    Effect::Satisfy(id) if *id == edge.child => Some(EdgeState::Satisfied),
                    Effect::Refuse(id) if *id == edge.child => Some(EdgeState::Refused),
                    _ => None,
                });
                let by_end = edge.decided_by(self.jobs[parent].status);
                edge.state = asked.or(by_end).unwrap_or(EdgeState::Refused);
                if self.jobs[*child].decide(edge.state, &mut led_to) {
                    ended.push(*child);
                }
            }
        }
        led_to
    }
}

impl Modelled {
    /// Decides one parent; returns whether that cancels the job.
    fn decide(&mut self, state: EdgeState, led_to: &mut Recorded) -> bool {
        self.open -= 1;
        if self.status != JobStatus::Pending || self.blocked == 0 {
            return false;
        }
        if state == EdgeState::Satisfied {
            self.blocked -= 1;
        }
        if self.blocked == 0 {
            led_to.released.push(self.id);
        }
        let hopeless = self.open < self.blocked;
        if hopeless {
            self.status = JobStatus::Canceled;
            led_to.canceled.push(self.id);
        }
        hopeless
    }
}
