//! Cron expressions in UTC. Pure.

use std::str::FromStr as _;

use chrono::{DateTime, Timelike as _, Utc};
use ratchet_api::Timestamp;

/// A cron schedule of five fields (minute first), six (second first) or seven (a year last).
#[derive(Clone, Debug)]
pub(crate) struct CronSchedule(cron::Schedule);

/// The reason why an expression is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidCron {
    #[error("{0}")]
    Syntax(String),
    #[error("it is never due")]
    Never,
}

impl CronSchedule {
    /// Reads an expression. One that is not due again after `now` is refused.
    pub(crate) fn parse(expression: &str, now: Timestamp) -> Result<Self, InvalidCron> {
        let short = expression.split_ascii_whitespace().count() == 5;
        let whole = if short { format!("0 {expression}") } else { expression.to_owned() };
        let schedule =
            cron::Schedule::from_str(&whole).map_err(|error| InvalidCron::Syntax(error.to_string()))?;
        let schedule = Self(schedule);
        schedule.after(now).map(|_| schedule).ok_or(InvalidCron::Never)
    }

    /// The first time after `now`.
    pub(crate) fn after(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.after(&now.to_datetime()).next().map(timestamp)
    }

    /// The last time that is not after `now`.
    pub(crate) fn last(&self, now: Timestamp) -> Option<Timestamp> {
        let second = now.to_datetime().with_nanosecond(0)?;
        if self.0.includes(second) {
            return Some(timestamp(second));
        }
        self.0.after(&second).next_back().map(timestamp)
    }
}

fn timestamp(time: DateTime<Utc>) -> Timestamp {
    Timestamp::from_millis(time.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        timestamp(time.parse().unwrap())
    }

    #[test]
    fn it_is_due_before_and_after_an_instant() {
        let table = [
            ("0 0 2 * * *", "2026-11-16T01:59:59.999Z", "2026-11-15T02:00:00Z", "2026-11-16T02:00:00Z"),
            ("0 0 2 * * ?", "2026-11-16T02:00:00.000Z", "2026-11-16T02:00:00Z", "2026-11-17T02:00:00Z"),
            ("0 0 2 * * *", "2026-11-16T02:00:00.500Z", "2026-11-16T02:00:00Z", "2026-11-17T02:00:00Z"),
            ("* * * * * *", "2026-11-16T02:00:00.500Z", "2026-11-16T02:00:00Z", "2026-11-16T02:00:01Z"),
            ("30 2 * * *", "2026-12-31T23:00:00.000Z", "2026-12-31T02:30:00Z", "2027-01-01T02:30:00Z"),
            ("0 0 0 29 2 * *", "2026-11-16T00:00:00.000Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
        ];
        for (expression, now, last, next) in table {
            let schedule = CronSchedule::parse(expression, at(now)).unwrap();
            assert_eq!(schedule.last(at(now)), Some(at(last)), "{expression} {now}");
            assert_eq!(schedule.after(at(now)), Some(at(next)), "{expression} {now}");
        }
    }

    #[test]
    fn what_is_never_due_or_makes_no_sense_is_refused() {
        let now = at("2026-11-16T00:00:00Z");
        for expression in ["0 0 0 31 2 *", "0 0 0 1 1 * 2020"] {
            assert!(matches!(CronSchedule::parse(expression, now), Err(InvalidCron::Never)), "{expression}");
        }
        for expression in ["daily", "0 0 25 * * *", "", "* * * *"] {
            let refused = CronSchedule::parse(expression, now);
            assert!(matches!(refused, Err(InvalidCron::Syntax(_))), "{expression}");
        }
    }
}
