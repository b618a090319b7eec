use std::time::{Duration, Instant};

/// What the poller saw last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollSignal {
    /// A look at the store claimed this many of at most `batch_size` jobs.
    Polled {
        /// How many jobs there were.
        claimed: usize,
        /// How many there could have been.
        batch_size: usize,
    },
    /// Someone says that there is work.
    Wakeup,
    /// The look failed.
    Failed,
}

/// Decides how long the poller waits before it looks again.
///
/// A plain function of what it is told: it reads no clock and does no I/O, so a table of cases tests it.
pub trait PollingStrategy: Send + 'static {
    /// The delay after `signal`. `load` is the share of slots in use, 0 to 1; `now` never goes backwards.
    ///
    /// # Contract
    /// - `polling.pure`: the same signals at the same times give the same delays.
    /// - `polling.bounded`: never longer than the strategy's own idle delay, so that lost wakeups cost no more.
    fn next_delay(&mut self, signal: PollSignal, load: f64, now: Instant) -> Duration;
}
