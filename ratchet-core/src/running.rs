//! The attempts that are under way here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratchet_api::{Fence, JobId};
use tokio_util::sync::CancellationToken;

/// Every attempt from when its job was claimed until its end was told.
#[derive(Clone, Default)]
pub(crate) struct RunningJobs(Arc<Mutex<HashMap<JobId, Entry>>>);

/// The newest attempt of a job.
struct Entry {
    fence: Fence,
    stop: CancellationToken,
    gone: CancellationToken,
}

/// An attempt under way. When this goes, nobody can tell its body to stop any more.
pub(crate) struct Running {
    jobs: RunningJobs,
    job: JobId,
    fence: Fence,
    /// Tells the body to stop.
    pub(crate) token: CancellationToken,
    gone: CancellationToken,
    /// When the attempt before it has gone, if that was here too.
    before: Option<CancellationToken>,
}

impl RunningJobs {
    /// Notes that an attempt begins. One before it at the same job has lost it or has only its end left to tell.
    pub(crate) fn begin(&self, job: JobId, fence: Fence) -> Running {
        let (token, gone) = (CancellationToken::new(), CancellationToken::new());
        let entry = Entry { fence, stop: token.clone(), gone: gone.clone() };
        let before = self.entries().insert(job, entry).map(|before| {
            before.stop.cancel();
            before.gone
        });
        Running { jobs: self.clone(), job, fence, token, gone, before }
    }

    /// Whether this very attempt is under way, or a later one.
    pub(crate) fn has(&self, job: JobId, fence: Fence) -> bool {
        self.entries().get(&job).is_some_and(|entry| entry.fence >= fence)
    }

    /// Tells the body of a job to stop, if it runs here.
    pub(crate) fn stop(&self, job: JobId) {
        if let Some(entry) = self.entries().get(&job) {
            entry.stop.cancel();
        }
    }

    /// Tells the body of this very attempt to stop.
    pub(crate) fn stop_at(&self, job: JobId, fence: Fence) {
        if let Some(entry) = self.entries().get(&job).filter(|entry| entry.fence == fence) {
            entry.stop.cancel();
        }
    }

    /// Whether no attempt is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Every attempt.
    pub(crate) fn all(&self) -> Vec<(JobId, Fence)> {
        self.entries().iter().map(|(job, entry)| (*job, entry.fence)).collect()
    }

    /// Tells every body to stop.
    pub(crate) fn stop_all(&self) {
        for entry in self.entries().values() {
            entry.stop.cancel();
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<JobId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Completes when no earlier attempt at the job is under way here: then its end was told.
    pub(crate) async fn turn(&self) {
        if let Some(before) = &self.before {
            before.cancelled().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut entries = self.jobs.entries();
        if entries.get(&self.job).is_some_and(|entry| entry.fence == self.fence) {
            entries.remove(&self.job);
        }
        drop(entries);
        self.gone.cancel();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_attempt_waits_for_the_end_of_the_one_before_it() {
        let (jobs, job, fence) = (RunningJobs::default(), JobId::generate(), Fence::FIRST);
        let first = jobs.begin(job, fence);
        first.turn().await;
        let second = jobs.begin(job, fence.next());
        assert!(first.token.is_cancelled(), "whoever is not owner any more should stop");
        assert!(second.turn().now_or_never().is_none());
        drop(first);
        second.turn().await;
        assert!(jobs.has(job, fence.next()), "the end of the first leaves the second alone");
        jobs.stop(job);
        assert!(second.token.is_cancelled());
    }

    #[test]
    fn an_attempt_is_known_by_its_fence_until_it_goes() {
        let (jobs, job, fence) = (RunningJobs::default(), JobId::generate(), Fence::FIRST.next());
        let running = jobs.begin(job, fence);
        assert!(jobs.has(job, fence) && jobs.has(job, Fence::FIRST), "an older claim is of no use any more");
        assert!(!jobs.has(job, fence.next()), "a newer claim is somebody's to run");
        assert_eq!(jobs.all(), [(job, fence)]);
        jobs.stop_at(job, Fence::FIRST);
        assert!(!running.token.is_cancelled(), "it was another attempt's");
        jobs.stop_at(job, fence);
        assert!(running.token.is_cancelled());
        drop(running);
        assert!(!jobs.has(job, fence));
    }
}
