//! The migrator and the error codes against real servers: every case on every product that it is for.
//!
//! A process in which the variable of `victim` is set does not test but migrates, to be killed.

#![expect(clippy::unwrap_used, reason = "these are tests, though no harness marks them so")]

mod cases;
mod errors;
mod harness;
mod locks;
#[expect(dead_code, reason = "the tests of ddl/ use the rest")]
mod place;
mod victim;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(victim) = victim::Victim::from_env() {
        victim.migrate();
    }
    harness::run_all(&[("cases", cases::CASES), ("locks", locks::CASES), ("errors", errors::CASES)])
}
