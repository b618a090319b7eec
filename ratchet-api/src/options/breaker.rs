use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, days, millis, secs};

/// Circuit breakers: one per service name, each shaped by a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Whether breakers are consulted. Default true.
    pub enabled: bool,
    /// Whether a failure with the advice not to retry counts against the service. Default false: a declined card is a
    /// valid answer of the service.
    pub count_do_not_retry: bool,
    /// For services without a profile. Default 50 % of the last 100 calls, open for 30 s.
    pub standard: BreakerSettings,
    /// Trips and recovers quickly. Default 50 % of the last 20 calls, open for 10 s.
    pub fast: BreakerSettings,
    /// Slow to trip, for services that must be tried. Default 75 % of the last 200 calls, open for 60 s.
    pub critical: BreakerSettings,
    /// For third-party services. Default 60 % of the last 50 calls, open for 60 s.
    pub external_api: BreakerSettings,
}

/// The name of the settings that a service's breaker uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BreakerProfile {
    /// [`BreakerOptions::standard`].
    #[default]
    Standard,
    /// [`BreakerOptions::fast`].
    Fast,
    /// [`BreakerOptions::critical`].
    Critical,
    /// [`BreakerOptions::external_api`].
    ExternalApi,
}

/// When a breaker opens, and how it closes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Share of failed calls, in percent, from which on it opens.
    pub failure_rate: u8,
    /// The number of latest calls that count.
    pub window: u32,
    /// How long it stays open before it lets trial calls through. Jobs that find it open wait that long; no attempt is
    /// consumed.
    pub open_for: Duration,
    /// The number of trial calls. If all succeed, the breaker closes; if one fails, it opens again.
    pub half_open_calls: u32,
    /// The minimum number of calls before the failure rate is evaluated.
    pub min_calls: u32,
}

impl BreakerOptions {
    /// The settings of a profile.
    pub fn settings(&self, profile: BreakerProfile) -> BreakerSettings {
        match profile {
            BreakerProfile::Standard => self.standard,
            BreakerProfile::Fast => self.fast,
            BreakerProfile::Critical => self.critical,
            BreakerProfile::ExternalApi => self.external_api,
        }
    }

    /// Checks the ranges of all profiles.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("breaker");
        for (name, settings) in [
            ("standard", self.standard),
            ("fast", self.fast),
            ("critical", self.critical),
            ("external_api", self.external_api),
        ] {
            let BreakerSettings { failure_rate, window, open_for, half_open_calls, min_calls } = settings;
            rules.within(format_args!("{name}.failure_rate"), failure_rate, 1, 100);
            rules.within(format_args!("{name}.window"), window, 1, 100_000);
            rules.within(format_args!("{name}.open_for"), open_for, millis(1), days(1));
            rules.within(format_args!("{name}.half_open_calls"), half_open_calls, 1, 10_000);
            rules.within(format_args!("{name}.min_calls"), min_calls, 1, window);
        }
        rules.verdict()
    }
}

impl Default for BreakerOptions {
    fn default() -> Self {
        let profile = |failure_rate, window, open_secs, half_open_calls, min_calls| BreakerSettings {
            failure_rate,
            window,
            open_for: secs(open_secs),
            half_open_calls,
            min_calls,
        };
        Self {
            enabled: true,
            count_do_not_retry: false,
            standard: profile(50, 100, 30, 3, 5),
            fast: profile(50, 20, 10, 2, 3),
            critical: profile(75, 200, 60, 5, 10),
            external_api: profile(60, 50, 60, 3, 5),
        }
    }
}
