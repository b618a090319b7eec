//! Pausing and resuming jobs, schedules and queues.

use async_trait::async_trait;
use ratchet_api::store::{JobPauseStore, PauseVerdict, ResumeVerdict, Target};
use ratchet_api::{JobStatus, QueueName, StoreResult, Timestamp};

use super::retry::reserve_keys;
use super::{again, is_stale, lock_targets};
use crate::store::SqlStore;
use crate::store::info::present;
use crate::store::lock_rows::{LockedJob, RowState};
use crate::store::row::read_readable;
use crate::store::session::Session;

#[async_trait]
impl JobPauseStore for SqlStore {
    async fn pause(&self, jobs: &[Target]) -> StoreResult<Vec<PauseVerdict>> {
        self.transaction("pause", |session| Box::pin(pause_all(session, jobs))).await
    }

    async fn resume(&self, jobs: &[Target]) -> StoreResult<Vec<ResumeVerdict>> {
        self.transaction("resume", |session| Box::pin(resume_all(session, jobs))).await
    }

    async fn set_queue_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<bool> {
        self.write("set_queue_paused", |session| {
            Box::pin(async move {
                let change = match paused {
                    true => {
                        let pause = session.sql().pause_queue.bind().arg("queue", queue.as_str());
                        pause.arg("now", session.store().now())
                    }
                    false => session.sql().resume_queue.bind().arg("queue", queue.as_str()),
                };
                Ok(change.run(session).await? > 0)
            })
        })
        .await
    }

    async fn paused_queues(&self) -> StoreResult<Vec<QueueName>> {
        self.read("paused_queues", |session| {
            Box::pin(async move {
                let rows = session.sql().paused_queues.bind().rows(session).await?;
                Ok(read_readable(session.op(), "a paused queue", &rows, |cells| cells.get("queue")))
            })
        })
        .await
    }
}

async fn pause_all(session: &mut Session<'_>, targets: &[Target]) -> StoreResult<Vec<PauseVerdict>> {
    lock_targets(session, targets).await?;
    let now = present(session).await?;
    let mut verdicts = Vec::with_capacity(targets.len());
    for target in targets {
        verdicts.push(match again(session, target.id).await? {
            None => PauseVerdict::Unknown,
            Some(held) if is_stale(target, &held) => PauseVerdict::Stale(held.status()),
            Some(held) => match held.status() {
                JobStatus::Paused => PauseVerdict::AlreadyPaused,
                JobStatus::Pending | JobStatus::Failed => pause_one(session, &held, now).await?,
                status => PauseVerdict::NotPausable(status),
            },
        });
    }
    Ok(verdicts)
}

async fn pause_one(session: &mut Session<'_>, held: &LockedJob, now: Timestamp) -> StoreResult<PauseVerdict> {
    let id = held.id;
    match held.place {
        RowState::Queue(_) => {
            let pause = session.sql().pause_waiting.bind().arg("now", now);
            pause.arg("job_id", id).run(session).await?;
        }
        RowState::Schedule { .. } => set_schedule_paused(session, held, true).await?,
        RowState::Ended(_) => {
            if let Some(holder) = reserve_keys(session, &[held.id], now).await?.remove(&held.id) {
                return Ok(PauseVerdict::KeyTaken { holder });
            }
            let revive = session.sql().revive.bind().arg("paused", true).arg("job_ids", vec![id]);
            revive.arg("now", now).run(session).await?;
        }
    }
    Ok(PauseVerdict::Paused)
}

async fn resume_all(session: &mut Session<'_>, targets: &[Target]) -> StoreResult<Vec<ResumeVerdict>> {
    lock_targets(session, targets).await?;
    let now = present(session).await?;
    let mut verdicts = Vec::with_capacity(targets.len());
    for target in targets {
        verdicts.push(match again(session, target.id).await? {
            None => ResumeVerdict::Unknown,
            Some(held) if is_stale(target, &held) => ResumeVerdict::Stale(held.status()),
            Some(held) if held.status() != JobStatus::Paused => ResumeVerdict::NotPaused(held.status()),
            Some(held) => ResumeVerdict::Resumed(resume_one(session, &held, now).await?),
        });
    }
    Ok(verdicts)
}

async fn resume_one(session: &mut Session<'_>, held: &LockedJob, now: Timestamp) -> StoreResult<JobStatus> {
    let id = held.id;
    match &held.place {
        RowState::Queue(queued) if queued.paused_from == Some(JobStatus::Failed) => {
            session.sql().resume_failed.bind().arg("job_id", id).run(session).await?;
            return Ok(JobStatus::Failed);
        }
        RowState::Queue(_) => {
            let resume = session.sql().resume_waiting.bind().arg("now", now);
            resume.arg("job_id", id).run(session).await?;
        }
        RowState::Schedule { .. } | RowState::Ended(_) => set_schedule_paused(session, held, false).await?,
    }
    Ok(JobStatus::Pending)
}

async fn set_schedule_paused(session: &mut Session<'_>, held: &LockedJob, paused: bool) -> StoreResult<()> {
    let set = session.sql().set_schedule_paused.bind().arg("paused", paused);
    set.arg("job_id", held.id).run(session).await?;
    Ok(())
}
