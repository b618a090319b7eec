//! One file for each area.

mod attempt;
mod bodies;
mod control;
mod life_cycle;
mod queues;
mod submit;

use crate::Case;

/// Every case.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    [attempt::CASES, bodies::CASES, control::CASES, life_cycle::CASES, queues::CASES, submit::CASES]
        .into_iter()
        .flatten()
}
