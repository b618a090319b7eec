use super::OptionsError;

/// Safety checks at start, and redaction of error texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityOptions {
    /// Whether a scheduler may start with a policy that allows nothing. Default false: nothing could run, which is
    /// usually a mistake.
    pub allow_empty_class_policy: bool,
    /// Whether e-mail addresses are removed from error texts. Default true. Credentials always are.
    pub redact_emails: bool,
}

impl SecurityOptions {
    /// Every combination is valid; the method is here so that all sections look alike.
    ///
    /// # Errors
    /// None at present.
    pub fn validate(&self) -> Result<(), OptionsError> {
        Ok(())
    }
}

impl Default for SecurityOptions {
    fn default() -> Self {
        Self { allow_empty_class_policy: false, redact_emails: true }
    }
}
