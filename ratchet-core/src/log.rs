//! The log lines of one attempt, until they are stored.

use ratchet_api::{Fence, JobId, Limits, LogLevel, NewLogLine, Sanitized};

/// The lines of an attempt up to a size, in which each counts with its overhead, and the number of lines beyond it.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    job: JobId,
    fence: Fence,
    /// Bytes that are left.
    left: usize,
    lines: Vec<NewLogLine>,
    dropped: u64,
}

impl AttemptLog {
    pub(crate) const fn new(job: JobId, fence: Fence, most_bytes: usize) -> Self {
        Self { job, fence, left: most_bytes, lines: Vec::new(), dropped: 0 }
    }

    pub(crate) fn push(&mut self, level: LogLevel, message: Sanitized) {
        let size = Limits::LOG_LINE_OVERHEAD + message.as_str().len();
        match self.left.checked_sub(size).filter(|_| self.dropped == 0) {
            Some(left) => {
                self.left = left;
                self.lines.push(NewLogLine { job: self.job, fence: self.fence, level, message });
            }
            // No later line is kept either: a log with holes misleads.
            None => self.dropped += 1,
        }
    }

    /// Takes the lines, and how many there were beyond the limit.
    pub(crate) fn take(&mut self) -> (Vec<NewLogLine>, u64) {
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use ratchet_api::JobFailure;

    use super::*;
    use crate::defaults::DefaultErrorSanitizer;

    fn text(text: &str) -> Sanitized {
        Sanitized::new(&DefaultErrorSanitizer::default(), &JobFailure::new("", text))
    }

    #[test]
    fn what_is_beyond_the_limit_is_dropped_and_counted() {
        let bytes = 10 + 2 * Limits::LOG_LINE_OVERHEAD;
        let mut log = AttemptLog::new(JobId::generate(), Fence::FIRST, bytes);
        for message in ["12345", "12345", "6", ""] {
            log.push(LogLevel::Info, text(message));
        }
        let (lines, dropped) = log.take();
        assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["12345", "12345"]);
        assert_eq!(dropped, 2);
    }

    #[test]
    fn empty_lines_use_the_limit_up_too() {
        let mut log = AttemptLog::new(JobId::generate(), Fence::FIRST, 3 * Limits::LOG_LINE_OVERHEAD);
        (0..1_000).for_each(|_| log.push(LogLevel::Info, text("")));
        let (lines, dropped) = log.take();
        assert_eq!((lines.len(), dropped), (3, 997));
    }
}
