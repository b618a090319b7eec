//! The suite for a [`NodeIdentityProvider`]: implement [`IdentityHarness`], hand it to [`IdentitySuite`] in an integration test
//! with `harness = false`, and `cargo test` prints one line for each behaviour.
//!
//! ```no_run
//! # struct MyHarness;
//! # impl ratchet_tck::identity::IdentityHarness for MyHarness {
//! #   fn node(&self, _: usize) -> Box<dyn ratchet_api::spi::NodeIdentityProvider> { unreachable!() }
//! # }
//! fn main() -> std::process::ExitCode {
//!     ratchet_tck::identity::IdentitySuite::new(MyHarness).main()
//! }
//! ```

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use libtest_mimic::{Arguments, Failed, Trial};
use ratchet_api::Owner;
use ratchet_api::spi::NodeIdentityProvider;

use crate::Case;
use crate::case::cases;
use crate::suite::{in_runtime, outcome_of};

cases! { "identity" with Nodes;
    a_node_has_a_name: ["identity.stable"] [129];
    the_name_stays_the_same: ["identity.stable"] [130];
    every_thread_sees_the_same_name: ["identity.stable"] [130];
    nodes_have_names_of_their_own: ["identity.unique"] [130 131];
    an_owner_fits_whatever_the_name: ["identity.stable"] [130 131];
    owners_differ_also_under_one_name: ["identity.unique"] [130];
}

/// The number of nodes that the suite examines.
const NODES: usize = 4;

/// Makes identity providers for the suite.
pub trait IdentityHarness: Send + Sync + 'static {
    /// Makes the provider as this node of a cluster has it, with all that is different there: another process, another
    /// environment, another machine. The suite may ask for the same node again.
    fn node(&self, node: usize) -> Box<dyn NodeIdentityProvider>;
}

/// The suite for one identity provider.
pub struct IdentitySuite {
    harness: Arc<dyn IdentityHarness>,
}

impl IdentitySuite {
    /// Creates a suite that runs every case against this harness.
    pub fn new(harness: impl IdentityHarness) -> Self {
        Self { harness: Arc::new(harness) }
    }

    /// Runs as a test binary with the usual arguments of `cargo test`.
    pub fn main(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.trials()).exit_code()
    }

    /// Returns the cases, for a test binary that has more of them.
    pub fn trials(&self) -> Vec<Trial> {
        let trial = |case: &'static Case<Nodes>| {
            let nodes = Nodes(Arc::clone(&self.harness));
            Trial::test(case.id(), move || {
                in_runtime(outcome_of((case.run)(nodes))).map_err(|failure| Failed::from(failure.0))
            })
        };
        CASES.iter().map(trial).collect()
    }
}

/// The environment of a case: a number of nodes.
pub struct Nodes(Arc<dyn IdentityHarness>);

async fn a_node_has_a_name(nodes: Nodes) {
    for node in 0..NODES {
        assert_ne!(nodes.0.node(node).node_id(), "", "node {node}");
    }
}

async fn the_name_stays_the_same(nodes: Nodes) {
    let provider = nodes.0.node(0);
    let first = provider.node_id();
    for _ in 0..100 {
        assert_eq!(provider.node_id(), first);
    }
}

async fn every_thread_sees_the_same_name(nodes: Nodes) {
    let provider = nodes.0.node(0);
    let first = provider.node_id();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(provider.node_id(), first));
        }
    });
}

async fn nodes_have_names_of_their_own(nodes: Nodes) {
    let names: BTreeSet<String> = (0..NODES).map(|node| nodes.0.node(node).node_id()).collect();
    assert_eq!(names.len(), NODES, "{names:?}");
}

async fn an_owner_fits_whatever_the_name(nodes: Nodes) {
    for node in 0..NODES {
        let owner = Owner::incarnate(&nodes.0.node(node).node_id());
        assert!(owner.as_str().len() <= Owner::MAX_LEN, "{owner}");
    }
}

async fn owners_differ_also_under_one_name(nodes: Nodes) {
    let name = nodes.0.node(0).node_id();
    assert_ne!(Owner::incarnate(&name), Owner::incarnate(&name), "a restart is a new owner");
}
