//! The progress and log lines that bodies report while they run, batched across jobs.

use std::sync::Arc;

use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::store::{JobStore, ProgressReport};
use ratchet_api::{JobFailure, NewLogLine, Sanitized};

use crate::coalesce::Coalescer;
use crate::outage::Outage;

/// The most reports and lines in one call.
const MAX_BATCH: usize = 500;

/// The way of progress reports and log lines to the store.
#[derive(Clone)]
pub(crate) struct Journal {
    sanitizer: Arc<dyn ErrorSanitizer>,
    progress: Coalescer<ProgressReport, bool>,
    lines: Coalescer<Vec<NewLogLine>, ()>,
    progress_outage: Outage,
    lines_outage: Outage,
}

impl Journal {
    pub(crate) fn new(store: &Arc<dyn JobStore>, label: &str, sanitizer: Arc<dyn ErrorSanitizer>) -> Self {
        let progress = Coalescer::new(MAX_BATCH, 1, Arc::clone(store), |store, batch| async move {
            store.report_progress(&batch).await
        });
        let lines = Coalescer::new(MAX_BATCH, 1, Arc::clone(store), |store, batch: Vec<Vec<_>>| async move {
            let answers = vec![(); batch.len()];
            store.append_logs(&batch.concat()).await.map(|()| answers)
        });
        let outage = |what| Outage::new(what, label, &sanitizer);
        let (progress_outage, lines_outage) = (outage("progress"), outage("log lines of jobs"));
        Self { sanitizer, progress, lines, progress_outage, lines_outage }
    }

    pub(crate) const fn sanitizer(&self) -> &Arc<dyn ErrorSanitizer> {
        &self.sanitizer
    }

    /// The text without secrets, which may be stored and logged.
    pub(crate) fn sanitized(&self, text: &str) -> Sanitized {
        Sanitized::new(&*self.sanitizer, &JobFailure::new("", text))
    }

    pub(crate) async fn report(&self, report: ProgressReport) {
        self.progress_outage.note(&self.progress.send(report).await);
    }

    pub(crate) async fn append(&self, lines: Vec<NewLogLine>) {
        if lines.is_empty() {
            return;
        }
        self.lines_outage.note(&self.lines.send(lines).await);
    }
}
