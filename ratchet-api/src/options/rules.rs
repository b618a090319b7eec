use std::fmt::{Debug, Display};
use std::time::Duration;

use super::OptionsError;

/// Collects the problems of one section.
pub(crate) struct Rules {
    section: &'static str,
    problems: Vec<OptionsError>,
}

impl Rules {
    pub(crate) fn new(section: &'static str) -> Self {
        Self { section, problems: Vec::new() }
    }

    /// Records a problem unless `holds`.
    pub(crate) fn ensure(
        &mut self,
        holds: bool,
        field: impl Display,
        value: impl Debug,
        allowed: impl Into<String>,
    ) {
        if !holds {
            let option = match self.section {
                "" => field.to_string(),
                section => format!("{section}.{field}"),
            };
            let value = format!("{value:?}");
            self.problems.push(OptionsError::NotAllowed { option, value, allowed: allowed.into() });
        }
    }

    /// Requires `min <= value <= max`. If `max` is below `min`, the option that `max` comes from is out of range and
    /// reported as such, so only `min` is checked here.
    pub(crate) fn within<T: PartialOrd + Debug + Copy>(
        &mut self,
        field: impl Display,
        value: T,
        min: T,
        max: T,
    ) {
        let (holds, allowed) = match max < min {
            true => (value >= min, format!("at least {min:?}")),
            false => (value >= min && value <= max, format!("{min:?} to {max:?}")),
        };
        self.ensure(holds, field, value, allowed);
    }

    /// Requires five to seven fields. Their meaning is checked by the engine, which owns the parser.
    pub(crate) fn cron(&mut self, field: impl Display, expression: &str) {
        let fields = expression.split_ascii_whitespace().count();
        self.ensure((5..=7).contains(&fields), field, expression, "a cron expression of 5 to 7 fields");
    }

    /// Takes over the problems of a part.
    pub(crate) fn include(&mut self, part: Result<(), OptionsError>) {
        if let Err(error) = part {
            self.problems.extend_from_slice(error.problems());
        }
    }

    pub(crate) fn verdict(mut self) -> Result<(), OptionsError> {
        match self.problems.len() {
            0 => Ok(()),
            1 => Err(self.problems.remove(0)),
            _ => Err(OptionsError::Several(self.problems)),
        }
    }
}

pub(crate) const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn mins(n: u64) -> Duration {
    Duration::from_mins(n)
}

pub(crate) const fn days(n: u64) -> Duration {
    Duration::from_hours(24 * n)
}
