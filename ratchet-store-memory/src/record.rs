//! History, logs, tags, edges, alerts and the archive.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{
    ArchiveFilter, ArchiveStore, DlqAlertStore, ExecutionStore, JobLogStore, Retention, TagStore,
    WorkflowConditionStore,
};
use ratchet_api::{
    Alerted, ArchivedJob, DlqAlert, Edge, Execution, JobId, JobStatus, LogLine, NewDlqAlert, NewLogLine,
    StoreResult, Tag, Timestamp,
};

use crate::MemoryStore;
use crate::state::{AlertGroup, Row, State};

#[async_trait]
impl ExecutionStore for MemoryStore {
    async fn executions(&self, job: JobId) -> StoreResult<Vec<Execution>> {
        Ok(self.transaction(|state, _| state.executions_of(job)))
    }
}

#[async_trait]
impl JobLogStore for MemoryStore {
    async fn append_logs(&self, lines: &[NewLogLine]) -> StoreResult<()> {
        self.transaction(|state, now| {
            for line in lines {
                state.log_lines += 1;
                let stored = LogLine::new(
                    state.log_lines,
                    line.fence,
                    now,
                    line.level,
                    line.message.as_str().to_owned(),
                );
                state.logs.insert((line.job, stored.seq), stored);
            }
        });
        Ok(())
    }

    async fn logs(&self, job: JobId, after: Option<u64>, limit: usize) -> StoreResult<Vec<LogLine>> {
        Ok(self.transaction(|state, _| {
            let later = |line: &&LogLine| after.is_none_or(|after| line.seq > after);
            state.logs_of(job).filter(later).take(limit).cloned().collect()
        }))
    }

    async fn purge_logs(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| {
            let old = state.logs.iter().filter(|(_, line)| now.since(line.at) > retention);
            let old: Vec<_> = old.map(|(key, _)| *key).take(limit).collect();
            state.logs.retain(|key, _| !old.contains(key));
            old.len() as u64
        }))
    }
}

#[async_trait]
impl TagStore for MemoryStore {
    async fn add_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool> {
        Ok(self.transaction(|state, _| {
            let Some(row) = state.jobs.get_mut(&job) else { return false };
            for tag in tags {
                if !row.job.spec.tags.contains(tag) {
                    row.job.spec.tags.push(tag.clone());
                }
            }
            true
        }))
    }

    async fn remove_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool> {
        Ok(self.transaction(|state, _| {
            let Some(row) = state.jobs.get_mut(&job) else { return false };
            row.job.spec.tags.retain(|tag| !tags.contains(tag));
            true
        }))
    }

    async fn jobs_by_tag(&self, tag: &Tag, after: Option<JobId>, limit: usize) -> StoreResult<Vec<JobId>> {
        Ok(self.transaction(|state, _| {
            let tagged = state.jobs.values().filter(|row| row.job.spec.tags.contains(tag));
            let ids = tagged.map(|row| row.job.spec.id).filter(|id| after.is_none_or(|after| *id > after));
            ids.take(limit).collect()
        }))
    }
}

#[async_trait]
impl WorkflowConditionStore for MemoryStore {
    async fn edges_from(&self, parents: &[JobId]) -> StoreResult<Vec<Edge>> {
        Ok(self.transaction(|state, _| {
            let mut edges: Vec<_> =
                state.edges.iter().filter(|edge| parents.contains(&edge.parent)).cloned().collect();
            edges.sort_by_key(|edge| edge.priority);
            edges
        }))
    }

    async fn edges_to(&self, children: &[JobId]) -> StoreResult<Vec<Edge>> {
        Ok(self.transaction(|state, _| {
            state.edges.iter().filter(|edge| children.contains(&edge.child)).cloned().collect()
        }))
    }
}

#[async_trait]
impl DlqAlertStore for MemoryStore {
    async fn record_alerts(&self, alerts: &[NewDlqAlert]) -> StoreResult<Vec<Alerted>> {
        Ok(self.transaction(|state, now| alerts.iter().map(|alert| state.record_alert(alert, now)).collect()))
    }

    async fn alerts(&self, job: JobId) -> StoreResult<Vec<DlqAlert>> {
        Ok(self.transaction(|state, _| state.alerts_of(job)))
    }
}

#[async_trait]
impl ArchiveStore for MemoryStore {
    async fn archive(&self, retention: &Retention, limit: usize) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| {
            let old = state.jobs.values().filter(|row| state.is_archivable(row, retention, now));
            let old: Vec<_> = old.map(|row| row.job.spec.id).take(limit).collect();
            let mut archived = 0;
            for id in old {
                if let Some(record) = state.remove_ended(id).and_then(|row| ArchivedJob::of(row.job, now)) {
                    state.archive.insert(id, record);
                    archived += 1;
                }
            }
            archived
        }))
    }

    async fn archived(&self, filter: &ArchiveFilter, limit: usize) -> StoreResult<Vec<ArchivedJob>> {
        Ok(self.transaction(|state, _| {
            let wanted = |job: &&ArchivedJob| {
                filter.target.as_ref().is_none_or(|target| job.payload.target() == target)
                    && filter.business_key.as_ref().is_none_or(|key| job.business_key.as_ref() == Some(key))
                    && filter.before.is_none_or(|before| job.id < before)
            };
            state.archive.values().rev().filter(wanted).take(limit).cloned().collect()
        }))
    }

    async fn purge_archive(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| {
            let old = state.archive.values().filter(|job| now.since(job.archived_at) > retention);
            let old: Vec<_> = old.map(|job| job.id).take(limit).collect();
            state.archive.retain(|id, _| !old.contains(id));
            old.len() as u64
        }))
    }
}

impl State {
    pub(crate) fn executions_of(&self, job: JobId) -> Vec<Execution> {
        self.executions.values().filter(|row| row.job == job).cloned().collect()
    }

    pub(crate) fn logs_of(&self, job: JobId) -> impl Iterator<Item = &LogLine> {
        self.logs.range((job, 0)..=(job, u64::MAX)).map(|(_, line)| line)
    }

    pub(crate) fn alerts_of(&self, job: JobId) -> Vec<DlqAlert> {
        self.alerts.iter().filter(|alert| alert.job == job).cloned().collect()
    }

    /// The edges that lead from a job, by priority, then in the order they were stored.
    pub(crate) fn edges_from(&self, parent: JobId) -> Vec<Edge> {
        let mut edges: Vec<_> = self.edges.iter().filter(|edge| edge.parent == parent).cloned().collect();
        edges.sort_by_key(|edge| edge.priority);
        edges
    }

    fn record_alert(&mut self, alert: &NewDlqAlert, now: Timestamp) -> Alerted {
        let is_twin = |other: &DlqAlert| {
            other.job == alert.job
                && other.error_hash == alert.error_hash
                && now.since(other.at) < alert.window
        };
        let seen = self.alerts.iter().any(is_twin);
        let fresh = AlertGroup { told_at: now, count: 0 };
        let is_new = !self.alert_groups.contains_key(&alert.fingerprint);
        let group = self.alert_groups.entry(alert.fingerprint.clone()).or_insert(fresh);
        if seen {
            return Alerted { recorded: false, notify: false, count: group.count };
        }
        let notify = is_new || now.since(group.told_at) >= alert.window;
        if notify {
            *group = AlertGroup { told_at: now, count: 0 };
        }
        group.count += 1;
        let count = group.count;
        self.alerts.push(DlqAlert::new(alert.job, alert.error_hash.clone(), alert.fingerprint.clone(), now));
        Alerted { recorded: true, notify, count }
    }

    /// Whether the job ended long enough ago.
    fn is_archivable(&self, row: &Row, retention: &Retention, now: Timestamp) -> bool {
        let keep = if row.job.status == JobStatus::Failed { retention.failed } else { retention.ended };
        let batch = row.job.spec.batch.and_then(|batch| self.batches.get(&batch));
        let counted_on = batch.is_some_and(|row| row.batch.completed_at.is_none());
        let ending = row.job.ending.as_ref().filter(|_| row.job.status.is_terminal());
        ending.is_some_and(|ending| now.since(ending.terminated_at) > keep && !counted_on)
    }
}
