//! The error for stored or configured names that this build does not know.

/// The error for a name that no known value has: a policy, a status, a job type.
///
/// Stores return it for a column they cannot map, configuration for a word it cannot read. It is an error rather than a
/// panic because a newer node may have written a value that this build does not know.
///
/// ```
/// use ratchet_api::UnknownValue;
///
/// let error = UnknownValue::new("backoff policy", "LINEAR");
/// assert_eq!(error.to_string(), "unknown backoff policy `LINEAR`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{value}`")]
pub struct UnknownValue {
    /// The kind of value that was expected, as a lower-case noun.
    pub what: &'static str,
    /// The text that was found instead.
    pub value: String,
}

impl UnknownValue {
    /// Creates an error that reads "unknown *what* `value`".
    pub fn new(what: &'static str, value: impl Into<String>) -> Self {
        Self { what, value: value.into() }
    }
}
