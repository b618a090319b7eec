//! Errors of job bodies.

use ratchet_api::{JobFailure, RetryAdvice};

/// An error that a job's body returns. `#[derive(JobError)]` writes it.
///
/// ```
/// use ratchet_api::RetryAdvice;
/// use ratchet_core::JobError;
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
pub trait JobError: std::error::Error + 'static {
    /// What the error itself says about trying again.
    fn retry_advice(&self) -> RetryAdvice {
        RetryAdvice::Usual
    }
}

/// What a body may return as its error: a [`JobError`], or a [`JobFailure`], into which `?` turns any error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what it means for a retry",
    note = "add `#[derive(JobError)]` to it, or let the job return `Result<_, JobFailure>`"
)]
pub trait IntoFailure {
    /// The failure with its advice.
    fn into_failure(self) -> JobFailure;
}

impl IntoFailure for JobFailure {
    fn into_failure(self) -> JobFailure {
        self
    }
}

impl<E: JobError> IntoFailure for E {
    fn into_failure(self) -> JobFailure {
        JobFailure::from_error(&self).with_advice(self.retry_advice())
    }
}

/// For the code that `#[derive(JobError)]` writes: the advice of an inner error, whether it is a [`JobError`] or not.
#[doc(hidden)]
pub mod __private {
    use ratchet_api::RetryAdvice;

    use super::JobError;

    #[derive(Debug)]
    pub struct Inner<'e, E>(pub &'e E);

    /// Found first, because it needs no second reference.
    pub trait AdviceOfJobError {
        fn advice(&self) -> RetryAdvice;
    }

    impl<E: JobError> AdviceOfJobError for Inner<'_, E> {
        fn advice(&self) -> RetryAdvice {
            self.0.retry_advice()
        }
    }

    pub trait AdviceOfAny {
        fn advice(&self) -> RetryAdvice;
    }

    impl<E> AdviceOfAny for &Inner<'_, E> {
        fn advice(&self) -> RetryAdvice {
            RetryAdvice::Usual
        }
    }
}
