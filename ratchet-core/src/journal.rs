//! What bodies tell while they run: progress and log lines, put together across jobs.

use std::sync::Arc;

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
        Self { sanitizer, progress, lines }
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
        if let Err(error) = self.progress.send(report).await {
            tracing::warn!(%job, %error, "progress is not stored");
        }
    }

    pub(crate) async fn append(&self, job: JobId, lines: Vec<NewLogLine>) {
        if lines.is_empty() {
            return;
        }
        if let Err(error) = self.lines.send(lines).await {
            tracing::warn!(%job, %error, "log lines are not stored");
        }
    }
}
