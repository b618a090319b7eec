//! Errors of job bodies, and the one way their text gets into a store, a log or an event.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::advice::heard;
use crate::spi::ErrorSanitizer;
use crate::{OneLine, RetryAdvice, is_deceptive};

/// The failure of a job body, before it is sanitized.
///
/// Any error converts into it; `#[derive(JobError)]` adds the retry advice.
///
/// ```
/// use ratchet_api::JobFailure;
///
/// let failure = JobFailure::new("CardDeclined", "declined by the issuer").do_not_retry("issuer says no");
/// assert_eq!(failure.class(), "CardDeclined");
/// assert_eq!(failure.retry_advice().never(), Some("issuer says no"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFailure {
    class: Cow<'static, str>,
    message: String,
    causes: Vec<String>,
    advice: RetryAdvice,
}

impl JobFailure {
    /// The maximum number of causes that are kept.
    pub const MAX_CAUSES: usize = 10;

    /// Creates a failure of this class with this message.
    pub fn new(class: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { class: class.into(), message: message.into(), causes: Vec::new(), advice: RetryAdvice::Usual }
    }

    /// Converts an error and its sources. The class is the short name of the error's type. The retry advice is that of
    /// the outermost error that [gives](crate::heed) any.
    pub fn from_error<E: Error + 'static>(error: &E) -> Self {
        Self::of_chain(Some(short_name::<E>()), error)
    }

    /// Converts an error whose type is hidden, such as an `anyhow::Error` or a `Box<dyn Error>`. The class is that of
    /// the outermost error in the chain whose retry advice is [known](crate::heed), or `Error`.
    ///
    /// ```
    /// use ratchet_api::JobFailure;
    ///
    /// let gone = JobFailure::new("Gone", "no such customer").do_not_retry("it was deleted");
    /// let error = anyhow::Error::from(gone.into_error()).context("sending the invoice");
    /// let failure = JobFailure::from_dyn(&*error);
    /// assert_eq!((failure.class(), failure.message()), ("Gone", "sending the invoice"));
    /// assert_eq!(failure.retry_advice().never(), Some("it was deleted"));
    /// ```
    pub fn from_dyn(error: &(dyn Error + 'static)) -> Self {
        Self::of_chain(None, error)
    }

    fn of_chain(class: Option<&'static str>, error: &(dyn Error + 'static)) -> Self {
        if let Some(Raised(failure)) = error.downcast_ref() {
            return failure.clone();
        }
        let mut failure = Self::new(class.unwrap_or("Error"), error.to_string());
        let mut link = Some(error);
        let mut class_is_known = class.is_some();
        while let Some(error) = link {
            if let Some((class, advice)) = heard(error).filter(|_| failure.advice == RetryAdvice::Usual) {
                failure.advice = advice;
                if !std::mem::replace(&mut class_is_known, true) {
                    failure.class = class.into();
                }
            }
            link = error.source().filter(|_| failure.causes.len() < Self::MAX_CAUSES);
            failure.causes.extend(link.map(ToString::to_string));
        }
        failure
    }

    /// Converts the failure into an error, for bodies that return another error type; its retry advice is found again
    /// inside that error.
    ///
    /// ```
    /// use ratchet_api::JobFailure;
    ///
    /// fn invoice(customer: Option<&str>) -> anyhow::Result<String> {
    ///     let gone = || JobFailure::new("Gone", "no such customer").do_not_retry("it was deleted");
    ///     let customer = customer.ok_or_else(|| gone().into_error())?;
    ///     Ok(format!("dear {customer}"))
    /// }
    /// ```
    pub fn into_error(self) -> impl Error + Send + Sync + 'static {
        Raised(self)
    }

    /// Forbids retries, for this reason.
    #[must_use]
    pub fn do_not_retry(mut self, reason: impl Into<String>) -> Self {
        self.advice = RetryAdvice::Never(reason.into());
        self
    }

    /// Asks for a retry no earlier than after `delay`.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.advice = RetryAdvice::After(delay);
        self
    }

    /// Creates a request to run the job again after `delay`: it is no failure and consumes no attempt.
    #[must_use]
    pub fn snooze(delay: Duration) -> Self {
        let mut snooze = Self::new("Snooze", "the job asked to be run again later");
        snooze.advice = RetryAdvice::Snooze(delay);
        snooze
    }

    /// Replaces the retry advice.
    #[must_use]
    pub fn with_advice(mut self, advice: RetryAdvice) -> Self {
        self.advice = advice;
        self
    }

    /// The error class.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The message, not sanitized: not for storing, logging or publishing.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The messages of the errors underneath, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// The retry advice.
    pub fn retry_advice(&self) -> &RetryAdvice {
        &self.advice
    }
}

/// Lets `?` work in a body that returns [`JobFailure`].
impl<E: Error + 'static> From<E> for JobFailure {
    fn from(error: E) -> Self {
        Self::from_error(&error)
    }
}

/// A failure as an error, to be wrapped in errors of other types.
pub(crate) struct Raised(pub(crate) JobFailure);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl Error for Raised {}

crate::debug_as_display!(Raised);

/// Shortens `core::num::ParseIntError` to `ParseIntError`, without generic arguments.
pub(crate) fn short_name<E>() -> &'static str {
    short_type_name(std::any::type_name::<E>())
}

fn short_type_name(full: &'static str) -> &'static str {
    let path = full.split('<').next().unwrap_or(full);
    path.rsplit("::").next().unwrap_or(path)
}

/// Text that went through an [`ErrorSanitizer`]. Stores, events and logs take no other error text.
///
/// There is one constructor, so secrets in error messages are removed in exactly one place:
///
/// ```
/// use ratchet_api::{JobFailure, Sanitized, spi::ErrorSanitizer};
///
/// struct Terse;
/// impl ErrorSanitizer for Terse {
///     fn sanitize(&self, failure: &JobFailure) -> String {
///         failure.class().to_owned()
///     }
/// }
///
/// let text = Sanitized::new(&Terse, &JobFailure::new("Timeout", "postgres://app:s3cret@db/x"));
/// assert_eq!(text.as_str(), "Timeout");
/// ```
///
/// There is no other way to make one:
///
/// ```compile_fail
/// let text = ratchet_api::Sanitized("postgres://app:s3cret@db/x".to_owned());
/// ```
///
/// ```compile_fail
/// let text: ratchet_api::Sanitized = "postgres://app:s3cret@db/x".to_owned().into();
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sanitized(String);

impl Sanitized {
    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 4096;
    const CUT: &str = "…[truncated]";

    /// Sanitizes `failure`. Regardless of the sanitizer, the text can be stored everywhere and displays all of its
    /// content: it has at most [`MAX_LEN`](Self::MAX_LEN) bytes, and of the [deceptive](is_deceptive) characters only
    /// line breaks and tabs.
    pub fn new(sanitizer: &dyn ErrorSanitizer, failure: &JobFailure) -> Self {
        let mut text = sanitizer.sanitize(failure);
        text.retain(|c| !is_deceptive(c) || matches!(c, '\n' | '\t'));
        if text.len() > Self::MAX_LEN {
            text.truncate(text.floor_char_boundary(Self::MAX_LEN - Self::CUT.len()));
            text.push_str(Self::CUT);
        }
        Self(text)
    }

    /// The text as it is stored and published. It may have several lines.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shows the text on [one line](OneLine), for logs: a line break in an error must not forge a log line. Stores keep
/// [`as_str`](Sanitized::as_str).
impl fmt::Display for Sanitized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(&self.0).fmt(f)
    }
}

impl fmt::Debug for Sanitized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<Sanitized> for String {
    fn from(text: Sanitized) -> Self {
        text.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Verbatim;
    impl ErrorSanitizer for Verbatim {
        fn sanitize(&self, failure: &JobFailure) -> String {
            failure.message().to_owned()
        }
    }

    // shows: S108 S111
    #[test]
    fn whatever_a_sanitizer_returns_can_be_stored() {
        let of = |message: &str| Sanitized::new(&Verbatim, &JobFailure::new("E", message));
        assert_eq!(of("a\0b\u{1b}[31m\n\tc\u{2028}\u{202e}").as_str(), "ab[31m\n\tc");
        for long in ["x".repeat(10_000), "é".repeat(10_000)] {
            let text = of(&long);
            assert!(text.as_str().len() <= Sanitized::MAX_LEN);
            assert!(text.as_str().ends_with("…[truncated]"));
        }
    }

    #[test]
    fn an_error_brings_its_class_and_its_causes() {
        let cause = "x".parse::<i32>().unwrap_err();
        let failure = JobFailure::from_error(&std::io::Error::other(cause));
        assert_eq!(failure.class(), "Error");
        assert_eq!(failure.message(), "invalid digit found in string");
        assert_eq!(short_type_name("a::B<c::D>"), "B");
    }

    /// An error with this many errors beneath it.
    #[derive(Debug)]
    struct Nested(usize, Option<Box<Nested>>);

    impl Nested {
        fn over(depth: usize) -> Self {
            Self(depth, depth.checked_sub(1).map(|rest| Box::new(Self::over(rest))))
        }
    }

    impl fmt::Display for Nested {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "level {}", self.0)
        }
    }

    impl Error for Nested {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    #[test]
    fn the_outermost_causes_are_kept() {
        assert_eq!(JobFailure::from(Nested::over(2)).causes(), ["level 1", "level 0"]);
        let failure = JobFailure::from(Nested::over(20));
        assert_eq!((failure.class(), failure.message()), ("Nested", "level 20"));
        assert_eq!(failure.causes().len(), JobFailure::MAX_CAUSES);
        assert_eq!((&*failure.causes()[0], &*failure.causes()[9]), ("level 19", "level 10"));
    }

    #[test]
    fn a_failure_says_what_it_advises() {
        let (failure, delay) = (JobFailure::new("E", "broken"), Duration::from_secs(3));
        assert_eq!(failure.retry_advice(), &RetryAdvice::Usual);
        assert_eq!(failure.retry_advice().never(), None);
        assert_eq!(failure.clone().do_not_retry("why").retry_advice().never(), Some("why"));
        assert_eq!(failure.clone().retry_after(delay).retry_advice(), &RetryAdvice::After(delay));
        assert_eq!(failure.with_advice(RetryAdvice::After(delay)).retry_advice(), &RetryAdvice::After(delay));
        assert_eq!(JobFailure::snooze(delay).retry_advice(), &RetryAdvice::Snooze(delay));
    }

    #[test]
    fn sanitized_text_is_kept_as_it_is_and_logged_on_one_line() {
        let text = Sanitized::new(&Verbatim, &JobFailure::new("E", "broken\nERROR forged"));
        assert_eq!(text.as_str(), "broken\nERROR forged");
        assert_eq!(text.to_string(), r"broken\nERROR forged");
        assert_eq!(String::from(text), "broken\nERROR forged");
    }
}
