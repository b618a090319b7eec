//! One file for each area.

mod bodies;
mod control;
mod submit;

use crate::Case;

/// Every case.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    [bodies::CASES, control::CASES, submit::CASES].into_iter().flatten()
}
