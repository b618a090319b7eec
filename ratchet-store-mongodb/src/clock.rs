//! The present time, as an expression that the server evaluates.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use ratchet_api::{StoreClock, Timestamp, whole_millis};

use crate::codec::date;

/// The present time by the clock that decides: `$$NOW` of the running statement, or the instant of a manual clock.
#[derive(Clone, Copy)]
pub(crate) struct Present(Option<Timestamp>);

impl Present {
    pub(crate) fn of(clock: &StoreClock) -> Self {
        Self(clock.manual_now())
    }

    /// The instant, unless only the server knows it.
    pub(crate) const fn known(self) -> Option<Timestamp> {
        self.0
    }

    pub(crate) fn expr(self) -> Bson {
        match self.0 {
            None => "$$NOW".into(),
            Some(now) => date(now).into(),
        }
    }

    /// The instant `delay` from now, capped at the latest time that every store can hold.
    pub(crate) fn plus(self, delay: Duration) -> Bson {
        match self.0 {
            Some(now) => date(now + delay).into(),
            None => doc! { "$min": [date(Timestamp::MAX), { "$add": ["$$NOW", bounded(delay)] }] }.into(),
        }
    }

    /// The instant `delay` ago, capped at the earliest time that every store can hold.
    pub(crate) fn minus(self, delay: Duration) -> Bson {
        match self.0 {
            Some(now) => date(now - delay).into(),
            None => {
                doc! { "$max": [date(Timestamp::MIN), { "$subtract": ["$$NOW", bounded(delay)] }] }.into()
            }
        }
    }

    /// A filter for documents whose `field` is not after the present.
    pub(crate) fn reached(self, field: &str) -> Document {
        self.compare("$lte", field)
    }

    /// A filter for documents whose `field` is after the present.
    pub(crate) fn ahead(self, field: &str) -> Document {
        self.compare("$gt", field)
    }

    fn compare(self, op: &str, field: &str) -> Document {
        match self.0 {
            Some(now) => doc! { field: { op: date(now) } },
            None => doc! { "$expr": { op: [format!("${field}"), "$$NOW"] } },
        }
    }
}

/// The milliseconds of `delay`, bounded so that the server can add them to a date without overflow.
fn bounded(delay: Duration) -> i64 {
    whole_millis(delay).min(Timestamp::MAX.as_millis())
}

/// The instant of a stored date.
pub(crate) fn instant(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}
