//! The whole certification of an identity provider: a harness of one method, and `main`.

use std::process::ExitCode;

use custom_identity::PodIdentity;
use ratchet_core::spi::NodeIdentityProvider;
use ratchet_tck::identity::{IdentityHarness, IdentitySuite};

struct Pods;

impl IdentityHarness for Pods {
    fn node(&self, node: usize) -> Box<dyn NodeIdentityProvider> {
        let pod = format!("billing-{node}");
        Box::new(PodIdentity::named("eu-west", &pod).expect("both are given"))
    }
}

fn main() -> ExitCode {
    IdentitySuite::new(Pods).main()
}
