//! One attempt at a claimed job, from its slot to its recorded outcome.
//!
//! [`attempt`] is the list of steps: load, [`gates`], body ([`invoke`]). [`record_outcome`] concludes ([`decide`]), has the
//! store record it ([`offer`]) and then [`announce`]s it.

mod announce;
mod attempt;
mod decide;
mod gates;
mod invoke;
mod offer;
mod parkings;
mod record_outcome;
mod unknown;
mod unstored;

pub use announce::DEFERRED_BY_BREAKER;
pub(crate) use announce::{HandedBack, announce};
pub(crate) use attempt::{Attempt, Stop, span};
pub(crate) use gates::permits_ahead;
pub(crate) use invoke::panicked;
pub(crate) use offer::Recording;
pub(crate) use parkings::Parkings;
pub(crate) use record_outcome::{bury, bury_corrupt, settle_unrun};
pub(crate) use unknown::UnknownTargets;
