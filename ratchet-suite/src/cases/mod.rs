//! One file for each area.

mod attempt;
mod bodies;
mod control;
mod faults;
mod life_cycle;
mod queues;
mod submit;

use crate::Case;

/// Every case.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let areas = [
        attempt::CASES,
        bodies::CASES,
        control::CASES,
        faults::CASES,
        life_cycle::CASES,
        queues::CASES,
        submit::CASES,
    ];
    areas.into_iter().flatten()
}
