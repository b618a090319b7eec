//! Numbers within the range of PostgreSQL.

use std::time::Duration;

use ratchet_api::{Timestamp, whole_millis};

/// A delay in milliseconds that, added to any stored instant, stays in the range of PostgreSQL's clock.
pub(crate) fn delay_millis(delay: Duration) -> i64 {
    whole_millis(delay).min(Timestamp::MAX.as_millis())
}

/// A retention in milliseconds that, counted back from any present, stays inside PostgreSQL's calendar.
pub(crate) fn retention_millis(retention: Duration) -> i64 {
    const THOUSAND_YEARS: i64 = 1_000 * 365 * 24 * 3_600_000;
    whole_millis(retention).min(THOUSAND_YEARS)
}

/// A number of rows, as `LIMIT` takes it.
pub(crate) fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
