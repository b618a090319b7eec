//! One conformance suite for every Ratchet store, coordinator and identity provider. How to certify a store:
//!
//! 1. Implement [`StoreHarness`]: make an empty, isolated namespace, and connect to it.
//! 2. Add an integration test with `harness = false` whose `main` hands the harness to [`Suite`]:
//!
//!    ```no_run
//!    # #[derive(Default)] struct MyHarness;
//!    # #[async_trait::async_trait] impl ratchet_tck::StoreHarness for MyHarness {
//!    #   async fn namespace(&self) -> ratchet_api::StoreResult<ratchet_tck::Namespace> { unreachable!() }
//!    #   async fn connect(&self, _: &ratchet_tck::Namespace, _: ratchet_api::StoreClock)
//!    #     -> ratchet_api::StoreResult<std::sync::Arc<dyn ratchet_api::store::JobStore>> { unreachable!() }
//!    # }
//!    fn main() -> std::process::ExitCode {
//!        ratchet_tck::Suite::new(MyHarness::default()).main()
//!    }
//!    ```
//! 3. `cargo test` prints one line for each behaviour: `claim::two_nodes_claim_disjoint_jobs ... ok`.
//!
//! The other replaceable parts that are easy to get wrong have suites too: [`coordinator::CoordinatorSuite`] for a
//! `ClusterCoordinator`, [`identity::IdentitySuite`] for a `NodeIdentityProvider`.
//!
//! A case is a plain function in [`cases`]. It names the contract ids of `ratchet_api::store` that it proves, and the
//! numbers of `docs/requirements.md`. Each runs in a namespace of its own, on a clock of its own, and never sleeps.

mod case;
pub mod cases;
pub mod coordinator;
pub mod fixture;
mod harness;
pub mod identity;
mod suite;

pub use case::Case;
pub use fixture::{Fixture, Peer};
pub use harness::{Namespace, Spoil, StoreHarness};
pub use suite::{CaseFailure, Suite, run_case};
