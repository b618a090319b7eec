//! Runs cases: as a test binary, or one by one.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;

use futures::FutureExt;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Builder;

use crate::{Case, Fixture, StoreHarness, cases};

/// Why a case failed.
#[derive(Clone, Debug)]
pub struct CaseFailure(pub String);

/// The suite for one store.
pub struct Suite {
    harness: Arc<dyn StoreHarness>,
    not_yet_built: &'static [&'static str],
}

impl Suite {
    /// Every case against this harness.
    pub fn new(harness: impl StoreHarness) -> Self {
        Self { harness: Arc::new(harness), not_yet_built: &[] }
    }

    /// Cases (`area::name`) or whole areas (`area`) that the store does not pass yet because something is not built.
    /// They are listed as ignored, and fail if asked for by name with `--ignored`.
    #[must_use]
    pub const fn not_yet_built(mut self, cases: &'static [&'static str]) -> Self {
        self.not_yet_built = cases;
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
        libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
    }
}

/// Runs one case in a namespace and a runtime of its own.
pub fn run_case(harness: &Arc<dyn StoreHarness>, case: &Case) -> Result<(), CaseFailure> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CaseFailure(format!("no runtime: {error}")))?;
    let result = runtime.block_on(async {
        let namespace = harness.namespace().await.map_err(|error| CaseFailure(describe(&error)))?;
        let fixture = Fixture::new(Arc::clone(harness), namespace);
        let closing = fixture.clone();
        let outcome = AssertUnwindSafe((case.run)(fixture)).catch_unwind().await;
        closing.close().await;
        outcome.map_err(|panic| CaseFailure(panic_text(panic.as_ref())))
    });
    // A case that was caught may leave tasks behind; they must not keep the process.
    runtime.shutdown_background();
    result
}

fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the case panicked").to_owned()
}
