//! Error texts for people.

use std::error::Error;
use std::fmt;

use crate::OneLine;

/// Displays an error with its sources, except those whose text it repeats already.
///
/// ```
/// use ratchet_api::{StoreError, StoreErrorKind, WithSources};
///
/// let error = StoreError::new(StoreErrorKind::Other, "commit", "no answer").with_source("the pipe is broken");
/// assert_eq!(WithSources(&error).to_string(), "store operation `commit`: no answer: the pipe is broken");
/// ```
pub struct WithSources<'a>(pub &'a dyn Error);

impl fmt::Display for WithSources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        for cause in std::iter::successors(self.0.source(), |&cause| cause.source()) {
            let cause = OneLine(&cause.to_string()).to_string();
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        f.write_str(&text)
    }
}

/// Implements `Debug` for errors as `Display` plus the sources that it leaves out: it is the text that people read when
/// `main` returns an error or something is unwrapped.
///
/// ```
/// #[derive(thiserror::Error)]
/// #[error("there is no tea; boil some water")]
/// struct NoTea;
/// ratchet_api::debug_as_display!(NoTea);
///
/// assert_eq!(format!("{NoTea:?}"), "there is no tea; boil some water");
/// ```
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),+ $(,)?) => {
        $(impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&$crate::WithSources(self), f)
            }
        })+
    };
}

#[cfg(test)]
mod tests {
    use crate::{StoreError, StoreErrorKind, SubmitError};

    #[derive(thiserror::Error)]
    #[error("not begun: {0}")]
    struct Told(#[from] StoreError);
    debug_as_display!(Told);

    #[test]
    fn what_an_error_says_is_said_once_and_on_one_line() {
        let error = StoreError::new(StoreErrorKind::Other, "claim", "no answer").with_source("a\nb");
        let text = r"store operation `claim`: no answer: a\nb";
        assert_eq!(format!("{error:?}"), text);
        assert_eq!(format!("{error:#?}"), text);
        assert_eq!(format!("{:?}", SubmitError::from(error.clone())), text);
        assert_eq!(format!("{:?}", Told(error)), format!("not begun: {text}"));
    }
}
