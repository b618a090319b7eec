//! The macros of Ratchet, re-exported and documented by `ratchet_core`.

mod attributes;
mod duration;
mod error;
mod function;
mod method;
mod service;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Turns the `#[job]` methods of an `impl` block into jobs.
///
/// ```
/// use ratchet_core::{JobContext, JobFailure, jobs};
///
/// struct Mailer;
///
/// #[jobs(target = "mail.Mailer")]
/// impl Mailer {
///     /// Sends a letter.
///     #[job(max_retries = 5, backoff = "exponential 30s", timeout = "5m")]
///     pub async fn send(&self, ctx: &JobContext, to: String) -> Result<u32, JobFailure> {
///         ctx.info("sending");
///         Ok(to.len() as u32)
///     }
/// }
///
/// let call = Mailer::job().send("jane".to_owned()).invocation()?;
/// assert_eq!((call.target.as_str(), call.method.as_str()), ("mail.Mailer", "send"));
/// assert_eq!(call.args.as_str(), r#"["jane"]"#);
/// # Ok::<_, ratchet_core::CallError>(())
/// ```
///
/// `target` is the stored name. It stays when the type is renamed, so choose one independent of the type.
///
/// A method takes `&self` and up to eight arguments that serde can store, and a `&JobContext` anywhere among them if it
/// wants one. It returns nothing, or a `Result` with any error: `anyhow::Error`, `Box<dyn Error + Send + Sync>`, a type
/// of your own, or a `JobFailure`, which also says whether and when to try again. An error with `#[derive(JobError)]`
/// says so wherever it is hidden: see `SchedulerBuilder::heed`. It stays an ordinary method that a test can call.
///
/// Options of `#[job]`, all of them defaults that a submission can change: `max_retries = 5`,
/// `backoff = "exponential 30s"` or `"fixed 10s"`, `timeout = "5m"`, `queue = "mail"`, `priority = "high"`,
/// `resource = "smtp"`, `tags = ["a", "b"]`. And about the method itself: `breaker = "smtp"` (the service that a
/// circuit breaker protects; beside `target` it stands for every method that names none), `breaker_profile = "fast"`
/// (its settings; also "standard", "critical" and "external_api"), `blocking` (it runs on a thread where it may block),
/// `name = "send"` (the stored name), `aliases = ["deliver", "old.Target.deliver"]` (names under which waiting jobs may
/// know it).
#[proc_macro_attribute]
pub fn jobs(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let block = parse_macro_input!(item as syn::ItemImpl);
    service::expand(syn::parse(arguments), block).into()
}

/// Turns a function into a job. Inside a `#[jobs]` block it marks a method; see there for its options.
///
/// ```
/// use ratchet_core::{JobFailure, job};
///
/// #[job(target = "reports", max_retries = 1)]
/// pub async fn rebuild(year: u16) -> Result<(), JobFailure> {
///     Ok(())
/// }
///
/// let call = rebuild::job(2026).invocation()?;
/// assert_eq!((call.target.as_str(), call.method.as_str()), ("reports", "rebuild"));
/// # Ok::<_, ratchet_core::CallError>(())
/// ```
///
/// Register it with `.function::<rebuild>()`.
#[proc_macro_attribute]
pub fn job(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    let expanded = syn::parse(arguments).and_then(|options| function::expand(&options, &function));
    expanded.unwrap_or_else(|mistake| function::stand_in(&function, &mistake)).into()
}

/// Derives `JobError`: whether an error should be retried.
///
/// ```
/// use ratchet_core::JobError;
///
/// #[derive(Debug, thiserror::Error, JobError)]
/// enum PayError {
///     #[error("card declined")]
///     #[do_not_retry("declined by the issuer")]
///     Declined,
///     #[error("gateway: {0}")]
///     Gateway(String),
/// }
///
/// assert_eq!(PayError::Declined.retry_advice().never(), Some("declined by the issuer"));
/// assert_eq!(PayError::Gateway("down".into()).retry_advice().never(), None);
/// ```
///
/// `#[do_not_retry]` or `#[do_not_retry("reason")]` stands on a variant or on the whole type. A `#[from]` variant gives
/// the answer of its inner error, if that is a `JobError`. Where it is hidden in an `anyhow::Error` or among the
/// sources of another error, the answer is found if a registered job returns this type or one that is made `#[from]`
/// it, or if the builder was told to `.heed::<PayError>()`.
#[proc_macro_derive(JobError, attributes(do_not_retry, from))]
pub fn derive_job_error(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::DeriveInput);
    error::expand(&item).unwrap_or_else(|error| error.to_compile_error()).into()
}
