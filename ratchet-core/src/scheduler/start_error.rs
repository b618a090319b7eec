use ratchet_api::options::OptionsError;
use ratchet_api::spi::HookError;
use ratchet_api::{InvalidName, StoreError, TargetName};

use crate::registry::{RegisteredTwice, TwoProfiles};

/// The reason why a scheduler does not start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Options out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A name that no store takes.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A target and method with two bodies.
    #[error(transparent)]
    Twice(#[from] RegisteredTwice),
    /// A breaker with two profiles.
    #[error(transparent)]
    Profiles(#[from] TwoProfiles),
    /// Two services on one target.
    #[error("two services claim target `{0}`; give each a target of its own")]
    TwoServices(TargetName),
    /// A target whose methods have no bean to be called on.
    #[error(
        "target `{0}` has no bean of the type that its methods are called on; give it one by `.bean_of(..)`"
    )]
    NoBean(TargetName),
    /// No target may run.
    #[error(
        "no target is allowed, so no job could run; name those that may run, \
         by prefix or as a whole, such as `.allow([\"billing.\"])`"
    )]
    EmptyPolicy,
    /// A target that is registered may not run.
    #[error("target `{0}` is registered but not allowed; add it or its prefix to `.allow(..)`")]
    Denied(TargetName),
    /// No job is registered.
    #[error(
        "no job is registered; add a service with `.register(..)`, or use `Ratchet::client` to submit only"
    )]
    NothingRegistered,
    /// A hook refused.
    #[error("a lifecycle hook refused the start: {0}")]
    Hook(HookError),
    /// The store is not usable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime or the thread of the heartbeat cannot be started.
    #[error("the heartbeat cannot begin: {0}")]
    Heartbeat(#[from] std::io::Error),
}

ratchet_api::debug_as_display!(StartError);

#[cfg(test)]
mod tests {
    use ratchet_api::StoreErrorKind;

    use super::*;

    #[test]
    fn a_main_that_returns_it_shows_what_to_do() {
        let main = || -> Result<(), Box<dyn std::error::Error>> { Err(StartError::EmptyPolicy)? };
        let shown = format!("Error: {:?}", main().unwrap_err());
        assert!(shown.starts_with("Error: no target is allowed, so no job could run; name those"), "{shown}");
        let store = StoreError::new(StoreErrorKind::Unavailable, "open", "no file").with_source("no disk");
        assert_eq!(format!("{:?}", StartError::Store(store)), "store operation `open`: no file: no disk");
        let thread = StartError::Heartbeat(std::io::Error::other("no thread"));
        assert_eq!(format!("{thread:?}"), "the heartbeat cannot begin: no thread");
    }
}
