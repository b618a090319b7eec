//! All options of a scheduler in one value, by section.
//!
//! The defaults are meant to be right for a first production day. [`RatchetOptions::validate`] reports every
//! problem at once; the scheduler calls it before it starts anything.
//!
//! Some settings of other schedulers are missing on purpose. Concurrency is set per named queue, not per job type.
//! There is no hand-over queue to size: a node claims no more than its free slots, the stated headroom and, if its jobs
//! are fast, what it runs in a tenth of a second. There is no grace period for orphans besides the lease. The options
//! of the database (address, migrations, isolation level) are in the store crates.

mod breaker;
mod error;
mod execution;
mod maintenance;
mod node;
mod polling;
mod recurring;
mod retry;
mod rules;
mod security;
mod store;
#[cfg(test)]
mod tests;
mod timeout;

pub use breaker::{BreakerOptions, BreakerProfile, BreakerSettings};
pub use error::OptionsError;
pub use execution::{ExecutionOptions, QueueOptions};
pub use maintenance::{ArchiveOptions, MaintenanceOptions, PurgeOptions};
pub use node::NodeOptions;
pub use polling::PollingOptions;
pub use recurring::RecurringOptions;
pub use retry::RetryOptions;
pub(crate) use rules::Rules;
pub use security::SecurityOptions;
pub use store::StoreOptions;
pub use timeout::TimeoutOptions;

use crate::limits::Limits;

/// The options of one scheduler.
///
/// Each section is a plain struct with public fields; the method of the same name changes it within a call chain.
///
/// ```
/// use std::time::Duration;
/// use ratchet_api::options::RatchetOptions;
///
/// let options = RatchetOptions::default()
///     .store(|store| store.priority_boost_interval = Duration::from_mins(5))
///     .execution(|execution| execution.queue("mail").slots = 10);
/// assert!(options.validate().is_ok());
///
/// let wrong = RatchetOptions::default().node(|node| node.lease = Duration::from_secs(10));
/// assert_eq!(
///     wrong.validate().unwrap_err().to_string(),
///     "node.beat is 6s, allowed is 100ms to 2s (a fifth of node.lease)"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RatchetOptions {
    /// How often and how much is claimed.
    pub polling: PollingOptions,
    /// Queues, slots, and jobs that cannot run on this node.
    pub execution: ExecutionOptions,
    /// Identity, heartbeat and crash recovery.
    pub node: NodeOptions,
    /// Claim order.
    pub store: StoreOptions,
    /// Purging and archiving.
    pub maintenance: MaintenanceOptions,
    /// Sizes of what is stored.
    pub limits: Limits,
    /// Firing of recurring schedules.
    pub recurring: RecurringOptions,
    /// How long an attempt may take.
    pub timeout: TimeoutOptions,
    /// Safety checks at start, and redaction of error texts.
    pub security: SecurityOptions,
    /// Circuit breakers.
    pub breaker: BreakerOptions,
    /// Retry defaults, and delays that consume no attempt.
    pub retry: RetryOptions,
}

/// Generates the setter of each section and its call in `validate`, so that no section can lack either.
macro_rules! sections {
    ($($section:ident: $kind:ty),+ $(,)?) => {
        impl RatchetOptions {
            $(
                #[doc = concat!("Changes the `", stringify!($section), "` section.")]
                #[must_use]
                pub fn $section(mut self, change: impl FnOnce(&mut $kind)) -> Self {
                    change(&mut self.$section);
                    self
                }
            )+

            /// Checks all sections.
            ///
            /// # Errors
            /// Every problem found, not only the first; see [`OptionsError::problems`].
            pub fn validate(&self) -> Result<(), OptionsError> {
                let mut rules = Rules::new("");
                $( rules.include(self.$section.validate()); )+
                rules.verdict()
            }
        }
    };
}

sections! {
    polling: PollingOptions,
    execution: ExecutionOptions,
    node: NodeOptions,
    store: StoreOptions,
    maintenance: MaintenanceOptions,
    limits: Limits,
    recurring: RecurringOptions,
    timeout: TimeoutOptions,
    security: SecurityOptions,
    breaker: BreakerOptions,
    retry: RetryOptions,
}
