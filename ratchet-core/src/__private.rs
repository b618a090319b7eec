//! Support for the code that macros write, which does not know whether a type is a [`JobError`] or some other error:
//! method resolution finds the impl that needs the fewest references first.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use ratchet_api::{IntoFailure, JobError, JobFailure, RetryAdvice};

/// The error inside of another one.
#[derive(Debug)]
pub struct Inner<'e, E>(pub &'e E);

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

/// The error type of a `Result`, without a value of it.
pub struct ErrorOf<R>(pub PhantomData<fn() -> R>);

impl<R> fmt::Debug for ErrorOf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::any::type_name::<R>())
    }
}

pub trait HeedJobError {
    fn heed(&self);
}

impl<R, E: JobError> HeedJobError for ErrorOf<Result<R, E>> {
    fn heed(&self) {
        ratchet_api::heed::<E>();
    }
}

pub trait HeedNone {
    fn heed(&self) {}
}

impl<R> HeedNone for &ErrorOf<R> {}

/// The type of this error, by which method resolution chooses how to make a failure of it.
pub const fn type_of<E>(_: &E) -> ErrorOf<Result<(), E>> {
    ErrorOf(PhantomData)
}

/// Makes a failure of an error that implements [`IntoFailure`].
#[derive(Debug)]
pub struct Own;

pub trait OwnKind {
    fn failure_kind(&self) -> Own {
        Own
    }
}

impl<R, E: IntoFailure> OwnKind for &&&ErrorOf<Result<R, E>> {}

impl Own {
    pub fn make<E: IntoFailure>(self, error: E) -> JobFailure {
        error.into_failure()
    }
}

/// Makes a failure of any other error.
#[derive(Debug)]
pub struct Plain;

pub trait PlainKind {
    fn failure_kind(&self) -> Plain {
        Plain
    }
}

impl<R, E: Error + 'static> PlainKind for &&ErrorOf<Result<R, E>> {}

impl Plain {
    pub fn make<E: Error + 'static>(self, error: E) -> JobFailure {
        JobFailure::from_error(&error)
    }
}

/// Makes a failure of a type that wraps an error, such as `anyhow::Error`.
#[derive(Debug)]
pub struct Hidden;

pub trait HiddenKind {
    fn failure_kind(&self) -> Hidden {
        Hidden
    }
}

impl<R, E: AsRef<dyn Error + Send + Sync>> HiddenKind for &ErrorOf<Result<R, E>> {}

impl Hidden {
    pub fn make<E: AsRef<dyn Error + Send + Sync>>(self, error: E) -> JobFailure {
        JobFailure::from_dyn(error.as_ref())
    }
}

/// The fallback for any other type: it requires [`IntoFailure`], so that the compiler says what is missing.
pub trait UnfitKind {
    fn failure_kind(&self) -> Own {
        Own
    }
}

impl<R, E> UnfitKind for ErrorOf<Result<R, E>> {}
