//! One file for each area.

mod attempt;
mod bodies;
mod callbacks;
mod cluster;
mod control;
mod dependents;
mod draining;
mod events;
mod faults;
mod gates;
mod hooks;
mod hostile;
mod life_cycle;
mod log_lines;
mod maintenance;
mod metrics;
mod notices;
mod plugs;
mod queues;
mod refused;
mod secrets;
mod start_stop;
mod submit;
mod wakeups;

use crate::Case;

/// Every case.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let areas = [
        attempt::CASES,
        bodies::CASES,
        callbacks::CASES,
        control::CASES,
        dependents::CASES,
        draining::CASES,
        events::CASES,
        faults::CASES,
        gates::CASES,
        hooks::CASES,
        hostile::CASES,
        life_cycle::CASES,
        log_lines::CASES,
        maintenance::CASES,
        metrics::CASES,
        notices::CASES,
        plugs::CASES,
        queues::CASES,
        refused::CASES,
        secrets::CASES,
        start_stop::CASES,
        submit::CASES,
        wakeups::CASES,
    ];
    areas.into_iter().chain(cluster::CASES.iter().copied()).flatten()
}
