//! The one error for stored or typed names that this build does not know.

/// A name that none of the known values carries: a policy, a status, a job type.
///
/// Stores return it for a column they cannot map, configuration for a word it cannot read. It is an answer
/// rather than a panic because a newer node may have written a value this one has never heard of.
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
    /// What kind of value was expected, as a lower-case noun.
    pub what: &'static str,
    /// The text that was found instead.
    pub value: String,
}

impl UnknownValue {
    /// An error that says "unknown *what* `value`".
    pub fn new(what: &'static str, value: impl Into<String>) -> Self {
        Self { what, value: value.into() }
    }
}
