//! The behaviours of the engine, end to end, on every store.
//!
//! A case is an `async fn` that gets a [`Fixture`]: an empty store, and ways to start nodes on it and to wait for their
//! results. Cases wait for states and events, never for time. [`run`] runs all of them on one store.

#![expect(missing_docs, reason = "cases say what they show by their names")]

mod cable;
mod cases;
mod fixture;
mod lines;
mod model;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub mod test_store;

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};

pub use fixture::{Fixture, Node};
pub use lines::Line;
use test_store::TestStore;

/// A function that makes an empty store for a case.
pub type MakePlace = fn() -> BoxFuture<'static, Box<dyn TestStore>>;

/// A behaviour of the engine: its name and the function that checks it.
pub struct Case {
    pub name: &'static str,
    pub run: fn(Fixture) -> BoxFuture<'static, ()>,
}

/// Lists the cases of an area.
#[macro_export]
macro_rules! cases {
    ($($name:ident;)*) => {
        pub(crate) const CASES: &[$crate::Case] = &[
            $($crate::Case {
                name: concat!(module_path!(), "::", stringify!($name)),
                run: |fixture| ::std::boxed::Box::pin($name(fixture)),
            }),*
        ];
    };
}

/// Runs every case on one store, each on its own thread and runtime, as `cargo test` would.
pub fn run(make: MakePlace) -> ExitCode {
    lines::keep();
    let trial = |case: &'static Case| {
        let name = case.name.trim_start_matches("ratchet_suite::cases::");
        Trial::test(name, move || run_case(case, make))
    };
    let trials = cases::all().map(trial).collect();
    let mut arguments = Arguments::from_args();
    arguments
        .test_threads
        .get_or_insert_with(|| CASES_PER_CORE * std::thread::available_parallelism().map_or(1, NonZero::get));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The number of cases that run at once by default: they mostly wait for leases and delays.
const CASES_PER_CORE: usize = 8;

/// The variable that limits a case: after so many seconds it has failed. Cases wait for what should happen, and in a
/// mutated engine it never does.
const LIMIT: &str = "RATCHET_CASE_SECONDS";

fn run_case(case: &Case, make: MakePlace) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let limit = std::env::var(LIMIT).ok().and_then(|seconds| seconds.parse().ok());
    let limit = limit.map_or(Duration::MAX, Duration::from_secs);
    let run = async {
        let place: Arc<dyn TestStore> = make().await.into();
        (case.run)(Fixture::new(Arc::clone(&place), make)).await;
        place.remove().await;
    };
    if runtime.block_on(async { tokio::time::timeout(limit, run).await }).is_err() {
        runtime.shutdown_background();
        return Err("it waits for what does not happen".into());
    }
    Ok(())
}
