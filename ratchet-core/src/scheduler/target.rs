//! The registrable items: types and functions that `#[jobs]` and `#[job]` were put on.

use std::any::Any;
use std::sync::Arc;

use ratchet_api::InvalidName;
use ratchet_api::spi::Bean;

use crate::registry::Method;

/// A service: a type whose methods are jobs. `#[jobs]` writes it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no jobs",
    note = "put `#[jobs(target = \"area.Name\")]` on its `impl` block, and `#[job]` on the methods"
)]
pub trait JobTarget: Any + Send + Sync + Sized {
    /// The name that payloads call it by: stable, whatever becomes of the Rust type.
    const TARGET: &'static str;

    /// Its methods.
    ///
    /// # Errors
    /// A name that no store takes.
    fn methods() -> Result<Vec<Method>, InvalidName>;

    /// The object that its methods are called on, for many jobs at a time.
    fn into_bean(self) -> Bean {
        Arc::new(self)
    }
}

/// A service that the application shares with its jobs.
impl<T: JobTarget> JobTarget for Arc<T> {
    const TARGET: &'static str = T::TARGET;

    fn methods() -> Result<Vec<Method>, InvalidName> {
        T::methods()
    }

    fn into_bean(self) -> Bean {
        self
    }
}

/// A function that is a job. `#[job]` writes it.
pub trait JobFunction {
    /// How to call it.
    ///
    /// # Errors
    /// A name that no store takes.
    fn method() -> Result<Method, InvalidName>;
}
