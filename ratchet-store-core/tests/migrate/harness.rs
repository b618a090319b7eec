//! Runs a case on every product that it is for, in a place of its own.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};

use crate::place::{Product, TestDatabase};

/// A behaviour, with the products that it is for.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) products: &'static [Product],
    pub(crate) run: fn(TestDatabase) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Lists cases: `products => name, name;`
macro_rules! list {
    ($($products:expr => $($name:ident),+;)+) => {
        pub(crate) const CASES: &[$crate::harness::Case] = &[$($(
            $crate::harness::Case {
                name: stringify!($name),
                products: $products,
                run: |place| Box::pin($name(place)),
            },
        )+)+];
    };
}
pub(crate) use list;

/// Runs every case of every area, as the arguments of this process say.
pub(crate) fn run_all(areas: &[(&str, &'static [Case])]) -> ExitCode {
    let mut trials = Vec::new();
    for (area, cases) in areas {
        for case in *cases {
            trials.extend(case.products.iter().map(|product| {
                Trial::test(format!("{area}::{}::{}", product.name(), case.name), || {
                    run(case, *product);
                    Ok(())
                })
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The time limit of a case. A case takes a few seconds on a busy machine.
const LONGEST: Duration = Duration::from_secs(150);

/// Runs a case in a place of its own, which is cleared away whatever happens.
fn run(case: &Case, product: Product) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let place = TestDatabase::new(product);
    let body = async { tokio::time::timeout(LONGEST, (case.run)(place.clone())).await.expect("an end") };
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(body)));
    // Tasks that a failed case left running must not hold locks while its place is cleared.
    runtime.shutdown_background();
    let clearing = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    clearing.block_on(async {
        place.clear().await;
        place.twin().clear().await;
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
