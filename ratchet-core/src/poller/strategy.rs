use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratchet_api::options::PollingOptions;
use ratchet_api::spi::{PollSignal, PollingStrategy};

/// The number of polls that make up the trend.
const WINDOW: usize = 10;
/// The time without a job after which the delay grows faster.
const LONG_QUIET: Duration = Duration::from_secs(30);
/// The number of full batches in a row that divide the delay by four.
const FULL_RUN: u32 = 3;
const SHORT_RUN_FLOOR: Duration = Duration::from_millis(100);
const FULL_RUN_FLOOR: Duration = Duration::from_millis(50);

/// The default strategy: short delays while there is work, long ones while there is none.
///
/// | mode | begins with | delay |
/// |---|---|---|
/// | burst | a wakeup | `burst_delay` |
/// | normal | `idle_threshold` empty polls in a row | `min_delay` to `max_delay` |
/// | deep idle | `deep_idle_after` without a job | `deep_idle_delay` |
///
/// In normal mode empty polls in a row stretch the delay exponentially and a found job makes it short again; the
/// trend of the last ten polls halves or doubles it. Load stretches it as well: a busy node leaves work to others.
/// No mode goes below its own shortest delay, except after full batches, which prove that there is more: one or two
/// of them halve the delay, three or more in a row divide it by four.
///
/// The answer to a wakeup is the longest that its work should have to wait. A poller that can poll at once does so,
/// and asks again with the result.
///
/// ```
/// use ratchet_core::options::PollingOptions;
/// use ratchet_core::spi::{PollSignal, PollingStrategy};
/// use ratchet_core::AdaptivePolling;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let mut polling = AdaptivePolling::new(PollingOptions::default(), start);
/// let empty = PollSignal::Polled { claimed: 0, batch_size: 50 };
/// assert_eq!(polling.next_delay(empty, 0.0, start + Duration::from_secs(300)), Duration::from_secs(60));
/// assert_eq!(polling.next_delay(PollSignal::Wakeup, 0.0, start + Duration::from_secs(301)), Duration::from_millis(500));
/// ```
#[derive(Clone, Debug)]
pub struct AdaptivePolling {
    options: PollingOptions,
    mode: PollingMode,
    last_job: Instant,
    /// How full the last polls were, 0 to 1.
    fills: VecDeque<f64>,
    full_run: u32,
    empty_run: u32,
    /// The factor by which empty polls have stretched the delay so far.
    growth: f64,
}

/// The mode of the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PollingMode {
    /// A wakeup announced work.
    Burst,
    /// Work arrives now and then.
    Normal,
    /// There has been no work for a long time.
    DeepIdle,
}

impl AdaptivePolling {
    /// A strategy in normal mode; time without a job counts from `now`.
    pub fn new(options: PollingOptions, now: Instant) -> Self {
        Self {
            options,
            mode: PollingMode::Normal,
            last_job: now,
            fills: VecDeque::with_capacity(WINDOW),
            full_run: 0,
            empty_run: 0,
            growth: 1.0,
        }
    }

    /// The current mode.
    pub fn mode(&self) -> PollingMode {
        self.mode
    }

    fn wake(&mut self, now: Instant) {
        self.mode = PollingMode::Burst;
        self.last_job = now;
        self.empty_run = 0;
        self.growth = 1.0;
    }

    fn record(&mut self, claimed: usize, batch_size: usize, now: Instant) {
        if self.fills.len() == WINDOW {
            self.fills.pop_front();
        }
        self.fills.push_back(claimed as f64 / batch_size as f64);
        self.full_run = if claimed >= batch_size { self.full_run.saturating_add(1) } else { 0 };
        if claimed == 0 { self.found_nothing(now) } else { self.found_work(now) }
    }

    fn found_work(&mut self, now: Instant) {
        self.last_job = now;
        self.empty_run = 0;
        self.growth = 1.0;
        if self.mode == PollingMode::DeepIdle {
            self.mode = PollingMode::Normal;
        }
    }

    fn found_nothing(&mut self, now: Instant) {
        self.empty_run = self.empty_run.saturating_add(1);
        let quiet = now.saturating_duration_since(self.last_job);
        if quiet >= self.options.deep_idle_after {
            self.mode = PollingMode::DeepIdle;
        } else if self.mode == PollingMode::Burst {
            if self.empty_run >= self.options.idle_threshold {
                self.mode = PollingMode::Normal;
            }
        } else {
            self.grow(quiet);
        }
    }

    fn grow(&mut self, quiet: Duration) {
        let threshold = self.options.idle_threshold;
        let (factor, every) = if quiet > LONG_QUIET { (3.0, threshold / 2) } else { (2.0, threshold) };
        if self.empty_run.is_multiple_of(every.max(1)) {
            let most = self.options.max_delay.div_duration_f64(self.options.min_delay);
            self.growth = (self.growth * factor).min(most);
        }
    }

    fn delay(&self, load: f64) -> Duration {
        let (shortest, stretch) = match self.mode {
            PollingMode::DeepIdle => return self.options.deep_idle_delay,
            PollingMode::Burst => (self.options.burst_delay, 1.0),
            PollingMode::Normal => (self.options.min_delay, self.growth),
        };
        let (pace, floor) = match self.full_run {
            0 => (self.trend(), shortest),
            run if run < FULL_RUN => (0.5, SHORT_RUN_FLOOR),
            _ => (0.25, FULL_RUN_FLOOR),
        };
        let longest = self.options.max_delay;
        shortest.mul_f64(stretch * pace * load_factor(load)).clamp(floor.min(longest), longest)
    }

    /// Halves the delay if batches are nearly full, doubles it if they are nearly empty.
    fn trend(&self) -> f64 {
        if self.fills.is_empty() {
            return 1.0;
        }
        match self.fills.iter().sum::<f64>() / self.fills.len() as f64 {
            mean if mean > 0.8 => 0.5,
            mean if mean < 0.2 && self.mode == PollingMode::Normal => 2.0,
            _ => 1.0,
        }
    }
}

/// The factor of the load: from 0.5 for an idle node to 2 for one whose slots are all taken.
fn load_factor(load: f64) -> f64 {
    let load = if load.is_nan() { 0.0 } else { load.clamp(0.0, 1.0) };
    0.5 + 1.5 * load
}

impl PollingStrategy for AdaptivePolling {
    fn next_delay(&mut self, signal: PollSignal, load: f64, now: Instant) -> Duration {
        match signal {
            PollSignal::Failed => return self.options.error_delay.min(self.options.deep_idle_delay),
            PollSignal::Wakeup => self.wake(now),
            // A poll that could not have found a job is no information.
            PollSignal::Polled { batch_size: 0, .. } => {}
            PollSignal::Polled { claimed, batch_size } => self.record(claimed, batch_size, now),
            _ => {}
        }
        self.delay(load)
    }
}

#[cfg(test)]
mod tests;
