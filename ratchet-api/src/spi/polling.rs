use std::time::{Duration, Instant};

/// The last event that the poller saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollSignal {
    /// A claim returned `claimed` of at most `batch_size` jobs.
    Polled {
        /// The number of claimed jobs.
        claimed: usize,
        /// The limit of the claim.
        batch_size: usize,
    },
    /// A wakeup arrived: there may be work.
    Wakeup,
    /// The claim failed.
    Failed,
}

/// Decides how long the poller waits before its next claim.
///
/// The delay depends on earlier calls and arguments alone: a strategy reads no clock and does no I/O, so a table of
/// cases tests it.
pub trait PollingStrategy: Send + 'static {
    /// The delay after `signal`. `load` is the share of slots in use, 0 to 1; `now` never goes backwards.
    ///
    /// # Contract
    /// - `polling.pure`: the same signals at the same times give the same delays.
    /// - `polling.bounded`: never longer than the strategy's own idle delay, so that lost wakeups cost no more.
    fn next_delay(&mut self, signal: PollSignal, load: f64, now: Instant) -> Duration;
}
