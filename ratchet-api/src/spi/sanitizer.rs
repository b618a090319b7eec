use crate::JobFailure;

/// Makes error text fit to be stored, logged and published.
///
/// Called only through [`Sanitized::new`](crate::Sanitized::new), which also bounds the result. The default keeps the
/// error class and removes credentials, tokens and personal data. Implementations are pure and never panic; applying
/// one twice changes nothing more.
pub trait ErrorSanitizer: Send + Sync + 'static {
    /// Returns the text to keep.
    ///
    /// # Contract
    /// - `sanitizer.pure`: the same failure gives the same text; sanitizing that text again changes nothing more.
    /// - `sanitizer.causes`: secrets in the causes are removed as well as those in the message.
    fn sanitize(&self, failure: &JobFailure) -> String;
}
