//! One file for each area.

mod attempt;
mod bodies;
mod control;
mod faults;
mod hostile;
mod life_cycle;
mod queues;
mod start_stop;
mod submit;

use crate::Case;

/// Every case.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let areas = [
        attempt::CASES,
        bodies::CASES,
        control::CASES,
        faults::CASES,
        hostile::CASES,
        life_cycle::CASES,
        queues::CASES,
        start_stop::CASES,
        submit::CASES,
    ];
    areas.into_iter().flatten()
}
