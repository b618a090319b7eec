//! How long a failed job waits before its next attempt. Pure: no clock and no random numbers of its own.
//!
//! The policy is part of the stored job, so it is data: a name and a number of milliseconds. Whether there is a
//! next attempt at all is decided elsewhere.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{UnknownValue, whole_millis};

#[cfg(test)]
mod tests;

/// The delay between a failure and the next attempt.
///
/// Written as `none`, `fixed 10s` or `exponential 30s`, with the units `ms`, `s`, `m`, `h` and `d`. Stores keep
/// whole milliseconds; anything finer is rounded up when a policy is written.
///
/// ```
/// use std::time::Duration;
/// use ratchet_api::Backoff;
///
/// let backoff: Backoff = "exponential 30s".parse()?;
/// assert_eq!(backoff.delay(1), Duration::from_secs(30));
/// assert_eq!(backoff.delay(3), Duration::from_secs(120));
/// assert_eq!(backoff.delay(u32::MAX), Backoff::MAX_DELAY);
/// # Ok::<(), ratchet_api::UnknownValue>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Backoff {
    /// The next attempt is due at once.
    #[default]
    None,
    /// The same delay after every failure.
    Fixed(Duration),
    /// The given delay after the first failure, doubled after each further one.
    Exponential(Duration),
}

impl Backoff {
    /// No delay is longer than a day, whatever the policy and the attempt.
    pub const MAX_DELAY: Duration = Duration::from_hours(24);

    /// Doubling stops here; it keeps the arithmetic inside its range for any attempt number.
    const MAX_EXPONENT: u32 = 20;

    /// Half the width of the jitter band, as a share of the delay.
    const JITTER: f64 = 0.1;

    /// The delay after the `attempt`-th failure, counted from 1. Zero is taken as 1.
    pub fn delay(&self, attempt: u32) -> Duration {
        let delay = match *self {
            Self::None => Duration::ZERO,
            Self::Fixed(base) => base,
            Self::Exponential(base) => {
                let exponent = attempt.saturating_sub(1).min(Self::MAX_EXPONENT);
                base.saturating_mul(1 << exponent)
            }
        };
        delay.min(Self::MAX_DELAY)
    }

    /// The delay moved by up to ±10 %, so that jobs which failed together do not come back together.
    ///
    /// `fraction` is the caller's random number in `[0, 1)`: 0 gives 90 % of the delay, one half the delay
    /// itself. At [`MAX_DELAY`](Self::MAX_DELAY) the band reaches beyond the maximum; a cut there would
    /// gather half of the jobs on one instant again.
    pub fn jittered(&self, attempt: u32, fraction: f64) -> Duration {
        // `clamp` would let NaN through, and NaN would panic below.
        let fraction = if fraction.is_nan() { 0.5 } else { fraction.clamp(0.0, 1.0) };
        self.delay(attempt).mul_f64(1.0 + Self::JITTER * (2.0 * fraction - 1.0))
    }

    /// The policy's name in the `backoff_policy` column: `NONE`, `FIXED` or `EXPONENTIAL`.
    pub const fn policy_name(&self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Fixed(_) => "FIXED",
            Self::Exponential(_) => "EXPONENTIAL",
        }
    }

    /// The policy's number in the `backoff_param_ms` column.
    pub fn param_millis(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Fixed(base) | Self::Exponential(base) => whole_millis(*base).unsigned_abs(),
        }
    }

    /// Puts a policy together from its two columns; `NONE` has no use for the number and ignores it.
    ///
    /// # Errors
    /// [`UnknownValue`] when `name` is not exactly one of the three names.
    pub fn from_parts(name: &str, millis: u64) -> Result<Self, UnknownValue> {
        let base = Duration::from_millis(millis);
        match name {
            "NONE" => Ok(Self::None),
            "FIXED" => Ok(Self::Fixed(base)),
            "EXPONENTIAL" => Ok(Self::Exponential(base)),
            _ => Err(UnknownValue::new("backoff policy", name)),
        }
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Fixed(_) => write!(f, "fixed {}", Millis(self.param_millis())),
            Self::Exponential(_) => write!(f, "exponential {}", Millis(self.param_millis())),
        }
    }
}

impl FromStr for Backoff {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_ascii_whitespace();
        let parsed = match (words.next(), words.next(), words.next()) {
            (Some("none"), None, None) => Some(Self::None),
            (Some("fixed"), Some(base), None) => base.parse().ok().map(|Millis(ms)| Self::Fixed(millis(ms))),
            (Some("exponential"), Some(base), None) => {
                base.parse().ok().map(|Millis(ms)| Self::Exponential(millis(ms)))
            }
            _ => None,
        };
        parsed.ok_or_else(|| UnknownValue::new("backoff", text))
    }
}

impl TryFrom<String> for Backoff {
    type Error = UnknownValue;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Backoff> for String {
    fn from(backoff: Backoff) -> Self {
        backoff.to_string()
    }
}

/// A number of milliseconds that is written with the largest unit that divides it: `90000` is `90s`.
struct Millis(u64);

impl Millis {
    const UNITS: [(&'static str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, factor): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*factor);
        let (unit, factor) = Self::UNITS.iter().find(fits).unwrap_or(&("ms", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl FromStr for Millis {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(drop)?;
        let (_, factor) = Self::UNITS.iter().find(|(name, _)| *name == unit).ok_or(())?;
        number.checked_mul(*factor).map(Self).ok_or(())
    }
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
