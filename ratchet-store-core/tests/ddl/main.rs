//! The texts in `ddl/` on real servers: what they make, and that migrations and clean install make the same.
//!
//! A process in which the variable of `victim` is set does not test but migrates, to be killed.

#![expect(clippy::unwrap_used, reason = "these are tests, though no harness marks them so")]

mod catalogue;
mod cut;
mod install;
mod kill;
mod shape;
mod sqlite;
mod text;
mod views;

#[path = "../migrate/harness.rs"]
mod harness;
#[path = "../migrate/place.rs"]
#[expect(dead_code, reason = "the tests of the migrator use the rest")]
mod place;
#[path = "../migrate/victim.rs"]
mod victim;

use std::process::ExitCode;

use place::Product;

/// Every product with texts in `ddl/`.
pub(crate) const ALL: &[Product] = &Product::ALL;

fn main() -> ExitCode {
    if let Some(victim) = victim::Victim::from_env() {
        victim.migrate();
    }
    harness::run_all(&[
        ("install", install::CASES),
        ("kill", kill::CASES),
        ("shape", shape::CASES),
        ("sqlite", sqlite::CASES),
        ("views", views::CASES),
    ])
}
