//! The job that every benchmark submits: an ordinary call with about 100 bytes of arguments.

use anyhow::Result;
use ratchet_api::JobPayload;
use ratchet_api::spi::JobInvocationResolver as _;
use ratchet_core::Call;
use ratchet_core::defaults::JsonInvocationResolver;
use serde::{Deserialize, Serialize};

pub(crate) const TARGET: &str = "billing.Invoices";
pub(crate) const METHOD: &str = "send";

/// The argument of the call, as the body receives it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Invoice {
    customer: u64,
    invoice: String,
    amount: String,
    currency: String,
    note: String,
}

impl Invoice {
    pub(crate) fn sample() -> Self {
        Self {
            customer: 4711,
            invoice: "2025-000815".to_owned(),
            amount: "129.90".to_owned(),
            currency: "EUR".to_owned(),
            note: "thank you".to_owned(),
        }
    }
}

/// The call, as `#[jobs]` would make it.
pub(crate) fn call(invoice: &Invoice) -> Call<()> {
    Call::new(TARGET, METHOD).arg(invoice)
}

/// The stored payload of the call.
pub(crate) fn payload() -> Result<JobPayload> {
    payload_for(TARGET)
}

/// The stored payload of the same call of another target.
pub(crate) fn payload_for(target: &'static str) -> Result<JobPayload> {
    let call = Call::<()>::new(target, METHOD).arg(&Invoice::sample());
    Ok(JsonInvocationResolver.to_payload(&call.invocation()?)?)
}
