//! The retry advice of errors, and how it is found when the error is wrapped in another one.

use std::any::TypeId;
use std::error::Error;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::JobFailure;
use crate::failure::{Raised, short_name};

/// The advice of an error about retries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RetryAdvice {
    /// No advice: the retry policy and the job's own limit decide.
    #[default]
    Usual,
    /// Do not retry, for this reason.
    Never(String),
    /// Retry no earlier than after this.
    After(Duration),
    /// Not a failure: the job asks to be run again after this, and no attempt is consumed.
    Snooze(Duration),
}

impl RetryAdvice {
    /// The reason not to retry, if that is the advice.
    pub fn never(&self) -> Option<&str> {
        match self {
            Self::Never(reason) => Some(reason),
            _ => None,
        }
    }
}

/// An error with retry advice. `#[derive(JobError)]` implements it.
///
/// ```
/// use ratchet_api::{JobError, RetryAdvice};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("card declined")]
/// struct Declined;
///
/// impl JobError for Declined {
///     fn retry_advice(&self) -> RetryAdvice {
///         RetryAdvice::Never("declined by the issuer".into())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what it means for a retry",
    note = "add `#[derive(JobError)]` to it"
)]
pub trait JobError: Error + Sized + 'static {
    /// The advice of an error about retries.
    fn retry_advice(&self) -> RetryAdvice {
        RetryAdvice::Usual
    }

    /// [Registers](heed) the types of errors that this one is made from.
    #[doc(hidden)]
    fn heed_inner() {}
}

/// The errors that a body without a macro may return: a [`JobError`], or a [`JobFailure`], into which `?` turns any
/// error. A body under `#[jobs]` or `#[job]` may return any error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a job can return",
    note = "return a `std::error::Error`, an `anyhow::Error`, a `Box<dyn Error + Send + Sync>` or a `JobFailure`; \
            `#[derive(JobError)]` lets an error say what it means for a retry"
)]
pub trait IntoFailure {
    /// Converts into a failure with its advice.
    fn into_failure(self) -> JobFailure;

    /// [Registers](heed) this type, so that its advice is found where it is wrapped in another error.
    #[doc(hidden)]
    fn heed();
}

impl IntoFailure for JobFailure {
    fn into_failure(self) -> JobFailure {
        self
    }

    fn heed() {}
}

impl<E: JobError> IntoFailure for E {
    fn into_failure(self) -> JobFailure {
        match self.retry_advice() {
            RetryAdvice::Usual => JobFailure::from_error(&self),
            advice => JobFailure::from_error(&self).with_advice(advice),
        }
    }

    fn heed() {
        heed::<E>();
    }
}

/// A registered type of error.
struct Heeded {
    of: TypeId,
    class: &'static str,
    ask: fn(&(dyn Error + 'static)) -> Option<RetryAdvice>,
}

/// The types are those of the whole program, so there is one list. It only grows, and is short.
static HEEDED: RwLock<Vec<Heeded>> = RwLock::new(Vec::new());

/// Registers a type of error, so that its retry advice is also followed where the error is wrapped: in an
/// `anyhow::Error`, in a `Box<dyn Error>`, among the sources of another error, or turned into a [`JobFailure`] by `?`.
/// Only registered types can be found there.
///
/// The error type that a registered job returns, and the types that it is made `#[from]`, are registered without this
/// call.
///
/// ```
/// use ratchet_api::{JobError, JobFailure, RetryAdvice, heed};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("card declined")]
/// struct Declined;
///
/// impl JobError for Declined {
///     fn retry_advice(&self) -> RetryAdvice {
///         RetryAdvice::Never("declined by the issuer".into())
///     }
/// }
///
/// heed::<Declined>();
/// let hidden = std::io::Error::other(Declined);
/// assert_eq!(JobFailure::from(hidden).retry_advice().never(), Some("declined by the issuer"));
/// ```
pub fn heed<E: JobError>() {
    let mut heeded = HEEDED.write().unwrap_or_else(PoisonError::into_inner);
    let of = TypeId::of::<E>();
    if heeded.iter().any(|known| known.of == of) {
        return;
    }
    heeded.push(Heeded {
        of,
        class: short_name::<E>(),
        ask: |error| error.downcast_ref::<E>().map(JobError::retry_advice),
    });
    drop(heeded);
    E::heed_inner();
}

/// The class and the advice of one error of a chain, if it is a [`JobFailure`] or its type is registered.
pub(crate) fn heard(error: &(dyn Error + 'static)) -> Option<(String, RetryAdvice)> {
    // `io::Error::source` skips the error that it was made from and returns the source of that one.
    let within = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let error = within.map_or(error, |within| within);
    if let Some(Raised(failure)) = error.downcast_ref() {
        return Some((failure.class().to_owned(), failure.retry_advice().clone()));
    }
    let heeded = HEEDED.read().unwrap_or_else(PoisonError::into_inner);
    heeded.iter().find_map(|known| Some((known.class.to_owned(), (known.ask)(error)?)))
}
