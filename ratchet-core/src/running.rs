//! The attempts that are under way on this node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratchet_api::{Fence, JobId, ParkedOn};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Every attempt, from the claim of its job until its end was announced.
#[derive(Clone, Default)]
pub(crate) struct RunningJobs(Arc<Inner>);

#[derive(Default)]
struct Inner {
    entries: Mutex<HashMap<JobId, Entry>>,
    /// Whether a suspect has ended since this was last asked.
    suspect_went: AtomicBool,
    suspect_gone: Notify,
    /// Notified when the last attempt ends.
    emptied: Notify,
}

/// The newest attempt of a job.
struct Entry {
    fence: Fence,
    stop: CancellationToken,
    gone: CancellationToken,
    /// The suspicion that it was parked on, if it may have killed a node.
    suspect: Option<ParkedOn>,
}

/// An attempt under way. Once this is dropped, its body can no longer be told to stop.
pub(crate) struct Running {
    jobs: RunningJobs,
    job: JobId,
    fence: Fence,
    /// Tells the body to stop.
    pub(crate) token: CancellationToken,
    gone: CancellationToken,
    /// Canceled when the attempt before it has ended, if that was here too.
    before: Option<CancellationToken>,
}

impl RunningJobs {
    /// Registers a new attempt. An earlier one at the same job has lost the job or has only its end left to announce.
    pub(crate) fn begin(&self, job: JobId, fence: Fence) -> Running {
        self.begin_suspect(job, fence, None)
    }

    /// Registers a new attempt at a job that was parked on `suspect` because it may have killed a node.
    pub(crate) fn begin_suspect(&self, job: JobId, fence: Fence, suspect: Option<ParkedOn>) -> Running {
        let (token, gone) = (CancellationToken::new(), CancellationToken::new());
        let entry = Entry { fence, stop: token.clone(), gone: gone.clone(), suspect };
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

    /// Tells the body of a job to stop, if it runs here; `false` if it does not.
    pub(crate) fn stop(&self, job: JobId) -> bool {
        let entries = self.entries();
        let entry = entries.get(&job);
        entry.inspect(|entry| entry.stop.cancel()).is_some()
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

    /// The suspicion that this job was parked on, if it runs here and may have killed a node.
    pub(crate) fn suspect(&self, job: JobId) -> Option<ParkedOn> {
        self.entries().get(&job).and_then(|entry| entry.suspect.clone())
    }

    /// How often each suspect that runs here has crashed.
    pub(crate) fn crashes_of_suspects(&self) -> Vec<u32> {
        let crashes = |entry: &Entry| match entry.suspect {
            Some(ParkedOn::Suspect { crashes, .. }) => Some(crashes),
            _ => None,
        };
        self.entries().values().filter_map(crashes).collect()
    }

    /// Marks a job of this node, which may have killed a node, as a suspect: if it is handed back, it is parked on
    /// `on`.
    pub(crate) fn mark_suspect(&self, job: JobId, on: ParkedOn) {
        if let Some(entry) = self.entries().get_mut(&job) {
            entry.suspect = Some(on);
        }
    }

    /// Completes when a suspect has ended since this was last awaited.
    pub(crate) async fn suspect_gone(&self) {
        self.0.suspect_gone.notified().await;
    }

    /// Whether a suspect has ended since this was last asked.
    pub(crate) fn has_suspect_gone(&self) -> bool {
        self.0.suspect_went.swap(false, Ordering::Relaxed)
    }

    /// Completes when no attempt is under way.
    pub(crate) async fn emptied(&self) {
        while !self.is_empty() {
            self.0.emptied.notified().await;
        }
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
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Completes when no earlier attempt at the job is under way here: then its end was announced.
    pub(crate) async fn turn(&self) {
        if let Some(before) = &self.before {
            before.cancelled().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut entries = self.jobs.entries();
        let mine = entries.get(&self.job).is_some_and(|entry| entry.fence == self.fence);
        let entry = mine.then(|| entries.remove(&self.job)).flatten();
        let empty = entries.is_empty();
        drop(entries);
        if entry.is_some_and(|entry| entry.suspect.is_some()) {
            self.jobs.0.suspect_went.store(true, Ordering::Relaxed);
            self.jobs.0.suspect_gone.notify_one();
        }
        if empty {
            self.jobs.0.emptied.notify_one();
        }
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

    #[tokio::test]
    async fn a_suspect_is_known_while_it_runs_and_its_end_is_told() {
        let (jobs, job, other) = (RunningJobs::default(), JobId::generate(), JobId::generate());
        let on = ParkedOn::Suspect { crashes: 2, method: "a.A.run".to_owned() };
        let _ordinary = jobs.begin(other, Fence::FIRST);
        let suspect = jobs.begin_suspect(job, Fence::FIRST, Some(on.clone()));
        assert_eq!((jobs.suspect(job), jobs.suspect(other)), (Some(on), None));
        assert_eq!(jobs.crashes_of_suspects(), [2]);
        assert!(jobs.suspect_gone().now_or_never().is_none() && !jobs.has_suspect_gone());
        drop(suspect);
        jobs.suspect_gone().await;
        assert!(jobs.has_suspect_gone() && !jobs.has_suspect_gone());
        assert_eq!((jobs.suspect(job), jobs.crashes_of_suspects()), (None, Vec::new()));
        assert!(jobs.emptied().now_or_never().is_none(), "another one runs");
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
