//! What an error says about trying again, and how that is heard when the error is hidden in another one.

use std::any::TypeId;
use std::error::Error;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::JobFailure;
use crate::failure::{Raised, short_name};

/// What the error itself says about trying again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RetryAdvice {
    /// Nothing: the retry policy and the job's own limit decide.
    #[default]
    Usual,
    /// Trying again is pointless, for this reason.
    Never(String),
    /// Not before this has passed.
    After(Duration),
    /// No failure at all: the job asks to be run again after this, and no attempt is consumed.
    Snooze(Duration),
}

impl RetryAdvice {
    /// The reason never to try again, if that is the advice.
    pub fn never(&self) -> Option<&str> {
        match self {
            Self::Never(reason) => Some(reason),
            _ => None,
        }
    }
}

/// An error that says what it means for a retry. `#[derive(JobError)]` writes it.
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
    /// What the error itself says about trying again.
    fn retry_advice(&self) -> RetryAdvice {
        RetryAdvice::Usual
    }

    /// [Heeds](heed) the errors that this one is made from.
    #[doc(hidden)]
    fn heed_inner() {}
}

/// What a body without a macro may return as its error: a [`JobError`], or a [`JobFailure`], into which `?` turns any
/// error. What `#[jobs]` and `#[job]` stand on may return any error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a job can return",
    note = "return a `std::error::Error`, an `anyhow::Error`, a `Box<dyn Error + Send + Sync>` or a `JobFailure`; \
            `#[derive(JobError)]` lets an error say what it means for a retry"
)]
pub trait IntoFailure {
    /// The failure with its advice.
    fn into_failure(self) -> JobFailure;

    /// From now on, its advice is followed also where it is hidden in another error.
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

/// A type of error whose advice is asked for.
struct Heeded {
    of: TypeId,
    class: &'static str,
    ask: fn(&(dyn Error + 'static)) -> Option<RetryAdvice>,
}

/// Types of this program, so one list for all of it. It only grows, and is short.
static HEEDED: RwLock<Vec<Heeded>> = RwLock::new(Vec::new());

/// From now on, the advice of this type is also followed where an error of it is hidden: in an `anyhow::Error`, in a
/// `Box<dyn Error>`, among the sources of another error, or turned into a [`JobFailure`] by `?`. A type
/// cannot be found there unless it is known.
///
/// A type that a registered job returns, and what it is made `#[from]`, is heeded without this.
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

/// What an error of a chain says, if it is one that can say something: its class and its advice.
pub(crate) fn heard(error: &(dyn Error + 'static)) -> Option<(String, RetryAdvice)> {
    // `io::Error` hides what it was made from, and shows the sources of that alone.
    let within = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let error = within.map_or(error, |within| within);
    if let Some(Raised(failure)) = error.downcast_ref() {
        return Some((failure.class().to_owned(), failure.retry_advice().clone()));
    }
    let heeded = HEEDED.read().unwrap_or_else(PoisonError::into_inner);
    heeded.iter().find_map(|known| Some((known.class.to_owned(), (known.ask)(error)?)))
}
