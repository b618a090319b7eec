use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratchet_api::options::BreakerSettings;
use ratchet_api::spi::{CircuitState, Gate};

/// The longest time for which a breaker is opened: a year.
const MAX_OPEN: Duration = Duration::from_hours(8_760);

/// The breaker of one service. Pure: the time is an argument.
pub(super) struct Breaker {
    settings: BreakerSettings,
    circuit: Circuit,
    /// The counted calls, kept while it is open to show what opened it.
    window: Window,
    touched: Instant,
}

enum Circuit {
    Closed,
    Open { until: Instant },
    HalfOpen(Trials),
}

/// The newest calls; `true` for a failed one.
#[derive(Default)]
struct Window {
    calls: VecDeque<bool>,
    failures: u32,
}

struct Trials {
    left: u32,
    succeeded: u32,
    /// When trials that did not report are replaced.
    until: Instant,
}

impl Breaker {
    pub(super) fn new(settings: BreakerSettings, now: Instant) -> Self {
        Self { settings, circuit: Circuit::Closed, window: Window::default(), touched: now }
    }

    pub(super) fn enter(&mut self, now: Instant) -> Gate {
        self.begin_trials(now);
        if let Some(retry_in) = self.retry_in(now) {
            return Gate::Reject { retry_in };
        }
        if let Circuit::HalfOpen(trials) = &mut self.circuit {
            trials.left -= 1;
        }
        Gate::Admit
    }

    pub(super) fn report(&mut self, failed: bool, now: Instant) {
        match &mut self.circuit {
            Circuit::Closed => {
                self.window.push(failed, self.settings.window);
                if self.window.is_bad(&self.settings) {
                    self.open(now, self.settings.open_for);
                }
            }
            Circuit::HalfOpen(_) if failed => self.open(now, self.settings.open_for),
            Circuit::HalfOpen(trials) => {
                trials.succeeded += 1;
                if trials.succeeded >= self.settings.half_open_calls {
                    self.close();
                }
            }
            // A late report of a call from before: the breaker is open already.
            Circuit::Open { .. } => {}
        }
    }

    pub(super) fn abandon(&mut self) {
        if let Circuit::HalfOpen(trials) = &mut self.circuit {
            trials.left = (trials.left + 1).min(self.settings.half_open_calls - trials.succeeded);
        }
    }

    pub(super) fn open(&mut self, now: Instant, duration: Duration) {
        self.circuit = Circuit::Open { until: now + duration.min(MAX_OPEN) };
    }

    pub(super) fn close(&mut self) {
        self.circuit = Circuit::Closed;
        self.window = Window::default();
    }

    pub(super) fn state(&self, now: Instant) -> CircuitState {
        match &self.circuit {
            Circuit::Open { until } if *until <= now => CircuitState::HalfOpen,
            _ => self.circuit_state(),
        }
    }

    /// The state as of the last call: an open one stays open until a trial begins.
    pub(super) fn circuit_state(&self) -> CircuitState {
        match &self.circuit {
            Circuit::Closed => CircuitState::Closed,
            Circuit::Open { .. } => CircuitState::Open,
            Circuit::HalfOpen(_) => CircuitState::HalfOpen,
        }
    }

    /// Time until a call may be tried; `None` if it may now.
    pub(super) fn retry_in(&self, now: Instant) -> Option<Duration> {
        let until = match &self.circuit {
            Circuit::Open { until } => *until,
            Circuit::HalfOpen(trials) if trials.left == 0 => trials.until,
            Circuit::Closed | Circuit::HalfOpen(_) => return None,
        };
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    pub(super) fn calls(&self) -> u32 {
        self.window.len()
    }

    pub(super) fn failures(&self) -> u32 {
        self.window.failures
    }

    pub(super) fn touch(&mut self, now: Instant) {
        self.touched = now;
    }

    pub(super) fn touched(&self) -> Instant {
        self.touched
    }

    /// Begins trials once the time of an open breaker, or that of trials which did not report, has run out.
    fn begin_trials(&mut self, now: Instant) {
        let succeeded = match &self.circuit {
            Circuit::Open { until } if *until <= now => 0,
            Circuit::HalfOpen(trials) if trials.left == 0 && trials.until <= now => trials.succeeded,
            _ => return,
        };
        let left = self.settings.half_open_calls - succeeded;
        self.circuit = Circuit::HalfOpen(Trials { left, succeeded, until: now + self.settings.open_for });
    }
}

impl Window {
    fn push(&mut self, failed: bool, size: u32) {
        if self.len() == size {
            self.failures -= u32::from(self.calls.pop_front() == Some(true));
        }
        self.calls.push_back(failed);
        self.failures += u32::from(failed);
    }

    fn is_bad(&self, settings: &BreakerSettings) -> bool {
        let (failures, calls) = (u64::from(self.failures), u64::from(self.len()));
        calls >= u64::from(settings.min_calls) && failures * 100 >= u64::from(settings.failure_rate) * calls
    }

    fn len(&self) -> u32 {
        u32::try_from(self.calls.len()).unwrap_or(u32::MAX)
    }
}
