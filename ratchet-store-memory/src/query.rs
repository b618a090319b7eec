//! The queries of a command line and a dashboard.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ratchet_api::store::{
    DeadLetterGroup, JobFilter, JobPage, JobQueryStore, JobStory, PageRequest, Parking, QueueHealth,
};
use ratchet_api::{Batch, BatchId, Fingerprint, Job, JobId, JobStatus, QueueName, StoreResult, Timestamp};

use crate::MemoryStore;
use crate::state::{Row, State};

#[async_trait]
impl JobQueryStore for MemoryStore {
    async fn query_jobs(&self, filter: &JobFilter, page: &PageRequest) -> StoreResult<JobPage> {
        Ok(self.transaction(|state, _| {
            let older = |row: &&Row| page.after.is_none_or(|after| row.job.spec.id < after);
            let matching = state.jobs.values().rev().filter(older).filter(|row| matches(row, filter));
            page_of(matching, page.limit)
        }))
    }

    async fn job_story(&self, job: JobId) -> StoreResult<Option<JobStory>> {
        Ok(self.transaction(|state, _| {
            let mut story = JobStory::of(state.jobs.get(&job)?.view());
            story.executions = state.executions_of(job);
            story.logs = state.logs_of(job).take(STORY_LOG_LINES).cloned().collect();
            story.parents = state.edges.iter().filter(|edge| edge.child == job).cloned().collect();
            story.dependents = state.edges_from(job);
            story.alerts = state.alerts_of(job);
            Some(story)
        }))
    }

    async fn queue_health(&self) -> StoreResult<Vec<(QueueName, QueueHealth)>> {
        Ok(self.transaction(|state, now| state.queue_health(now).into_iter().collect()))
    }

    async fn parkings(&self) -> StoreResult<Vec<Parking>> {
        Ok(self.transaction(|state, _| {
            let mut parkings: BTreeMap<(&QueueName, String), Parking> = BTreeMap::new();
            for Row { job, .. } in state.jobs.values().filter(|row| row.is_unblocked()) {
                let Some(on) = &job.parked_on else { continue };
                let (queue, oldest) = (&job.spec.queue, job.scheduled_time);
                let none = || Parking { queue: queue.clone(), on: on.clone(), jobs: 0, oldest };
                let parking = parkings.entry((queue, on.to_string())).or_insert_with(none);
                parking.jobs += 1;
                parking.oldest = parking.oldest.min(oldest);
            }
            parkings.into_values().collect()
        }))
    }

    async fn dead_letters(&self, limit: usize) -> StoreResult<Vec<DeadLetterGroup>> {
        Ok(self.transaction(|state, _| {
            let mut groups = state.dead_letters();
            groups.sort_by(|a, b| b.count.cmp(&a.count).then(b.last_at.cmp(&a.last_at)));
            groups.truncate(limit);
            groups
        }))
    }

    async fn recurring(&self) -> StoreResult<Vec<Job>> {
        Ok(self.transaction(|state, _| {
            let live = |row: &&Row| row.is_master() && !row.job.status.is_terminal();
            let mut masters: Vec<_> = state.jobs.values().filter(live).map(Row::view).collect();
            masters.sort_by(|a, b| a.spec.business_key.cmp(&b.spec.business_key));
            masters
        }))
    }

    async fn batches(&self, after: Option<BatchId>, limit: usize) -> StoreResult<Vec<Batch>> {
        Ok(self.transaction(|state, _| {
            let older =
                state.batches.values().rev().filter(|row| after.is_none_or(|after| row.batch.id < after));
            older.take(limit).map(|row| row.batch.clone()).collect()
        }))
    }
}

const STORY_LOG_LINES: usize = 1_000;

fn matches(row: &Row, filter: &JobFilter) -> bool {
    let (job, spec) = (&row.job, &row.job.spec);
    let ended_at = job.ending.as_ref().map(|ending| ending.terminated_at);
    let any_of = |wanted: &[JobStatus]| wanted.is_empty() || wanted.contains(&row.status());
    any_of(&filter.statuses)
        && (filter.types.is_empty() || filter.types.contains(&spec.job_type))
        && filter.queue.as_ref().is_none_or(|queue| spec.queue == *queue)
        && filter.target.as_ref().is_none_or(|target| spec.payload.target() == target)
        && filter.method.as_ref().is_none_or(|method| spec.payload.method() == method)
        && filter.tags.iter().all(|tag| spec.tags.contains(tag))
        && filter.business_key.as_ref().is_none_or(|key| spec.business_key.as_ref() == Some(key))
        && filter.caller_principal.as_ref().is_none_or(|who| spec.caller_principal.as_ref() == Some(who))
        && filter.created_from.is_none_or(|from| job.created_at >= from)
        && filter.created_until.is_none_or(|until| job.created_at < until)
        && filter.ended_from.is_none_or(|from| ended_at.is_some_and(|at| at >= from))
        && filter.ended_until.is_none_or(|until| ended_at.is_some_and(|at| at < until))
        && filter.fingerprint.as_ref().is_none_or(|fingerprint| row.fingerprint.as_ref() == Some(fingerprint))
}

/// The first rows of a list, and where the next page starts.
pub(crate) fn page_of<'a>(rows: impl Iterator<Item = &'a Row>, limit: usize) -> JobPage {
    let mut page = JobPage::default();
    let mut rows = rows.peekable();
    let mut last = None;
    for row in rows.by_ref().take(limit) {
        last = Some(row.job.spec.id);
        match row.unreadable {
            Some(_) => page.unreadable.push(row.job.spec.id),
            None => page.jobs.push(row.view()),
        }
    }
    page.next = last.filter(|_| rows.peek().is_some());
    page
}

impl State {
    fn queue_health(&self, now: Timestamp) -> BTreeMap<QueueName, QueueHealth> {
        let mut queues: BTreeMap<QueueName, QueueHealth> = BTreeMap::new();
        for queue in &self.paused_queues {
            queues.entry(queue.clone()).or_default().paused = true;
        }
        for row in self.jobs.values().filter(|row| !row.is_master()) {
            let job = &row.job;
            let health = queues.entry(job.spec.queue.clone()).or_default();
            match job.status {
                JobStatus::Pending if job.blocked_by > 0 => health.blocked += 1,
                JobStatus::Pending if job.scheduled_time > now => health.scheduled += 1,
                JobStatus::Pending if job.parked_on.is_some() => health.parked += 1,
                JobStatus::Pending => {
                    health.ready += 1;
                    health.ready_by_priority[job.spec.priority as usize] += 1;
                    health.oldest_wait = health.oldest_wait.max(Some(now.since(job.scheduled_time)));
                }
                JobStatus::Running => health.running += 1,
                JobStatus::Paused => health.set_aside += 1,
                JobStatus::Failed => health.failed += 1,
                JobStatus::Succeeded | JobStatus::Canceled => {}
            }
        }
        queues
    }

    fn dead_letters(&self) -> Vec<DeadLetterGroup> {
        let mut groups: BTreeMap<Fingerprint, DeadLetterGroup> = BTreeMap::new();
        for row in self.jobs.values().filter(|row| row.job.status == JobStatus::Failed) {
            let (Some(fingerprint), Some(ending)) = (&row.fingerprint, &row.job.ending) else { continue };
            let single = DeadLetterGroup::new(
                fingerprint.clone(),
                row.job.spec.payload.target().clone(),
                row.job.last_error.clone().unwrap_or_default(),
                row.job.spec.id,
                ending.terminated_at,
            );
            match groups.get_mut(fingerprint) {
                None => {
                    groups.insert(fingerprint.clone(), single);
                }
                Some(group) => {
                    let count = group.count + 1;
                    if (single.last_at, single.newest) > (group.last_at, group.newest) {
                        *group = single;
                    }
                    group.count = count;
                }
            }
        }
        groups.into_values().collect()
    }
}
