//! What bodies tell while they run: progress and log lines, put together across jobs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::store::{JobStore, ProgressReport};
use ratchet_api::{JobFailure, JobId, NewLogLine, Sanitized};

use crate::coalesce::Coalescer;

/// The most reports and lines in one call.
const MOST: usize = 500;

/// Where progress and lines go.
#[derive(Clone)]
pub(crate) struct Journal {
    sanitizer: Arc<dyn ErrorSanitizer>,
    progress: Coalescer<ProgressReport, bool>,
    lines: Coalescer<Vec<NewLogLine>, ()>,
    progress_lost: Lost,
    lines_lost: Lost,
}

/// Whether what is sent gets lost. Told when that changes: an outage is two log lines, not one for each report.
#[derive(Clone, Default)]
struct Lost(Arc<AtomicBool>);

impl Lost {
    fn tell<T, E: fmt::Display>(&self, job: JobId, what: &'static str, sent: Result<T, E>) {
        let is_news = self.is_news(sent.is_err());
        match sent {
            Err(error) if is_news => {
                tracing::warn!(%job, %error, "{what} cannot be stored; there is no more said until that is over");
            }
            Ok(_) if is_news => tracing::info!("{what} can be stored again"),
            _ => {}
        }
    }

    fn is_news(&self, lost: bool) -> bool {
        self.0.swap(lost, Ordering::Relaxed) != lost
    }
}

impl Journal {
    pub(crate) fn new(store: &Arc<dyn JobStore>, sanitizer: Arc<dyn ErrorSanitizer>) -> Self {
        let progress = Coalescer::new(MOST, 1, Arc::clone(store), |store, batch| async move {
            store.report_progress(&batch).await
        });
        let lines = Coalescer::new(MOST, 1, Arc::clone(store), |store, batch: Vec<Vec<_>>| async move {
            let answers = vec![(); batch.len()];
            store.append_logs(&batch.concat()).await.map(|()| answers)
        });
        Self { sanitizer, progress, lines, progress_lost: Lost::default(), lines_lost: Lost::default() }
    }

    pub(crate) const fn sanitizer(&self) -> &Arc<dyn ErrorSanitizer> {
        &self.sanitizer
    }

    /// Text that may be stored and logged.
    pub(crate) fn sanitized(&self, text: &str) -> Sanitized {
        Sanitized::new(&*self.sanitizer, &JobFailure::new("", text))
    }

    pub(crate) async fn report(&self, report: ProgressReport) {
        let job = report.id;
        self.progress_lost.tell(job, "progress", self.progress.send(report).await);
    }

    pub(crate) async fn append(&self, job: JobId, lines: Vec<NewLogLine>) {
        if lines.is_empty() {
            return;
        }
        self.lines_lost.tell(job, "log lines of jobs", self.lines.send(lines).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_when_it_begins_and_when_it_ends() {
        let lost = Lost::default();
        let told = [false, true, true, true, false, false, true].map(|failed| lost.is_news(failed));
        assert_eq!(told, [false, true, false, false, true, false, true]);
    }
}
