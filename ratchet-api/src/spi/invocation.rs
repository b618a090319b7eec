use crate::{InvalidName, JobPayload, JsonText};

/// A call in decoded form: target, method and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The target's stable name.
    pub target: String,
    /// The method.
    pub method: String,
    /// The arguments, as a JSON array.
    pub args: JsonText,
}

/// The error for a call that cannot be stored, or a payload that cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvocationError {
    /// The name of the target or method is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The stored text is not a call.
    #[error("payload is not a call: {0}")]
    Undecodable(String),
}

/// Turns calls into payloads and back.
///
/// The default writes `{"target": …, "method": …, "args": […]}`. Another one can version, compress or sign; it must
/// read everything that it ever wrote.
pub trait JobInvocationResolver: Send + Sync + 'static {
    /// Encodes a call as a payload.
    ///
    /// # Contract
    /// - `invocation.named`: the payload names the call's own target and method.
    fn to_payload(&self, invocation: &Invocation) -> Result<JobPayload, InvocationError>;

    /// Decodes the call of a payload.
    ///
    /// # Contract
    /// - `invocation.round_trip`: a payload that `to_payload` made decodes to an equal call, arguments byte for byte.
    /// - `invocation.undecodable`: text that is no call is an error, never a guess.
    fn to_invocation(&self, payload: &JobPayload) -> Result<Invocation, InvocationError>;
}
