//! The output of the demo.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ratchet_api::spi::JobEventListener;
use ratchet_api::{JobEvent, JobEventKind, JobType};

use crate::output::escape;

/// Prints events, one line each.
#[derive(Clone, Default)]
pub(crate) struct Screen {
    retries: Arc<AtomicU32>,
}

impl Screen {
    pub(crate) fn say(&self, text: &str) {
        print(&format!("\n{text}"));
    }

    /// The number of retries.
    pub(crate) fn retries(&self) -> u32 {
        self.retries.load(Ordering::Relaxed)
    }
}

impl JobEventListener for Screen {
    fn on_event(&self, event: &JobEvent) {
        let what = match &event.kind {
            JobEventKind::Completed { execution_time } => {
                format!("done in {} ms", execution_time.as_millis())
            }
            JobEventKind::Retrying { error, attempt, .. } => {
                self.retries.fetch_add(1, Ordering::Relaxed);
                format!("attempt {attempt} failed, tried again soon: {error}")
            }
            JobEventKind::DeadLettered { error, .. } => format!("DEAD LETTER: {error}"),
            JobEventKind::Canceling => "is told to stop".to_owned(),
            JobEventKind::Canceled { .. } => "canceled".to_owned(),
            _ => return,
        };
        // The end of an id is random; its beginning is the time.
        let id = event.header.job_id.to_string();
        let kind = if event.header.job_type == JobType::Callback { "receipt" } else { "job    " };
        print(&format!("  {kind} …{}  {what}", &id[id.len() - 8..]));
    }
}

/// Ignores write errors: the reader may have closed the pipe.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", escape::text(line));
}
