//! The runner of cases: as a test binary, or one by one.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;

use futures::FutureExt;
use libtest_mimic::{Arguments, Failed, Trial};
use ratchet_api::WithSources;
use tokio::runtime::Builder;

use crate::{Case, Fixture, StoreHarness, cases, coordinator};

/// The reason that a case failed.
#[derive(Clone, Debug)]
pub struct CaseFailure(pub String);

/// The suite for one store.
pub struct Suite {
    harness: Arc<dyn StoreHarness>,
    not_yet_built: &'static [&'static str],
    wakeups: bool,
}

impl Suite {
    /// Creates a suite that runs every case against this harness.
    pub fn new(harness: impl StoreHarness) -> Self {
        Self { harness: Arc::new(harness), not_yet_built: &[], wakeups: false }
    }

    /// Names cases (`area::name`) or whole areas (`area`) that the store does not pass yet because it is unfinished.
    /// They are listed as ignored, and fail if asked for by name with `--ignored`.
    #[must_use]
    pub const fn not_yet_built(mut self, cases: &'static [&'static str]) -> Self {
        self.not_yet_built = cases;
        self
    }

    /// Adds the cases of [`coordinator`], for a store that offers one.
    #[must_use]
    pub const fn wakeups(mut self) -> Self {
        self.wakeups = true;
        self
    }

    fn is_built(&self, case: &Case) -> bool {
        let id = case.id();
        !self.not_yet_built.iter().any(|entry| *entry == case.area || *entry == id)
    }

    /// Runs as a test binary with the usual arguments of `cargo test`.
    pub fn main(self) -> ExitCode {
        let known = |entry: &&&str| !cases::all().any(|case| case.area == **entry || case.id() == ***entry);
        if let Some(entry) = self.not_yet_built.iter().find(known) {
            eprintln!("`{entry}` is listed as not yet built, but no case or area has that name");
            return ExitCode::FAILURE;
        }
        let trials = cases::all().map(|case| {
            let harness = Arc::clone(&self.harness);
            Trial::test(case.id(), move || {
                run_case(&harness, case).map_err(|failure| Failed::from(failure.0))
            })
            .with_ignored_flag(!self.is_built(case))
        });
        let mut trials: Vec<Trial> = trials.collect();
        if self.wakeups {
            let coordinators = coordinator::OfStore(Arc::clone(&self.harness));
            trials.extend(coordinator::CoordinatorSuite::new(coordinators).trials());
        }
        libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
    }
}

/// Runs one case in a namespace and a runtime of its own.
pub fn run_case(harness: &Arc<dyn StoreHarness>, case: &Case) -> Result<(), CaseFailure> {
    in_runtime(async {
        let namespace =
            harness.namespace().await.map_err(|error| CaseFailure(WithSources(&error).to_string()))?;
        let fixture = Fixture::new(Arc::clone(harness), namespace);
        let closing = fixture.clone();
        let outcome = outcome_of((case.run)(fixture)).await;
        closing.close().await;
        outcome
    })
}

/// Runs a case in a runtime of its own.
pub(crate) fn in_runtime(case: impl Future<Output = Result<(), CaseFailure>>) -> Result<(), CaseFailure> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CaseFailure(format!("no runtime: {error}")))?;
    let result = runtime.block_on(case);
    // A case that was caught may leave tasks behind; they must not keep the process.
    runtime.shutdown_background();
    result
}

/// Runs the body of a case; a panic becomes a failure.
pub(crate) async fn outcome_of(body: impl Future<Output = ()>) -> Result<(), CaseFailure> {
    let outcome = AssertUnwindSafe(body).catch_unwind().await;
    outcome.map_err(|panic| CaseFailure(panic_text(panic.as_ref())))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the case panicked").to_owned()
}
