//! Calls of job methods, stored now and made later.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use ratchet_api::options::RetryOptions;
use ratchet_api::spi::Invocation;
use ratchet_api::{Backoff, InvalidName, JobPriority, JobSpec, JsonText, QueueName, ResourceName, Tag};
use serde::Serialize;
use serde_json::value::RawValue;

/// A call of a job's method, which is stored and made by a node later.
///
/// `#[jobs]` makes a function for each of your methods that returns one. By hand:
///
/// ```
/// use ratchet_core::Call;
///
/// let call: Call<u64> = Call::new("billing.Payments", "charge").arg(&42).arg(&"EUR");
/// assert_eq!(call.invocation()?.args.as_str(), r#"[42,"EUR"]"#);
/// # Ok::<_, ratchet_core::CallError>(())
/// ```
///
/// `R` is what the method returns when it succeeds.
pub struct Call<R> {
    target: Cow<'static, str>,
    method: Cow<'static, str>,
    args: Result<Vec<Box<RawValue>>, BadArgument>,
    defaults: JobDefaults,
    result: PhantomData<fn() -> R>,
}

/// An argument without a JSON form: its place, from 1, and serde's message.
type BadArgument = (usize, String);

/// A call that cannot be stored.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// An argument has no JSON form.
    #[error("argument {place} of `{target}.{method}` has no JSON form: {problem}")]
    Argument {
        /// The target.
        target: String,
        /// The method.
        method: String,
        /// The place of the argument, from 1.
        place: usize,
        /// The message of serde.
        problem: String,
    },
}

ratchet_api::debug_as_display!(CallError);

/// The defaults for every job of a method, which a submission may override.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct JobDefaults {
    /// The queue.
    pub queue: Option<Cow<'static, str>>,
    /// The priority.
    pub priority: Option<JobPriority>,
    /// Retries after the first attempt.
    pub max_retries: Option<u32>,
    /// How long to wait before a retry.
    pub backoff: Option<Backoff>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// The resource whose permits limit how many run at once in the cluster.
    pub resource: Option<Cow<'static, str>>,
    /// The tags, by which jobs can be found.
    pub tags: Vec<Cow<'static, str>>,
}

impl JobDefaults {
    /// Applies them to a job. A default that is not set leaves the job's value; retries and backoff then come from the
    /// options.
    pub(crate) fn apply(&self, retry: &RetryOptions, spec: &mut JobSpec) -> Result<(), InvalidName> {
        spec.max_retries = self.max_retries.unwrap_or(retry.max_retries);
        spec.backoff = self.backoff.unwrap_or(retry.backoff);
        spec.timeout = self.timeout.or(spec.timeout);
        spec.priority = self.priority.unwrap_or(spec.priority);
        if let Some(queue) = &self.queue {
            spec.queue = QueueName::new(queue.as_ref())?;
        }
        if let Some(resource) = &self.resource {
            spec.resource = Some(ResourceName::new(resource.as_ref())?);
        }
        for tag in &self.tags {
            spec.tags.push(Tag::new(tag.as_ref())?);
        }
        Ok(())
    }
}

impl<R> Call<R> {
    /// A call without arguments.
    pub fn new(target: impl Into<Cow<'static, str>>, method: impl Into<Cow<'static, str>>) -> Self {
        Self {
            target: target.into(),
            method: method.into(),
            args: Ok(Vec::new()),
            defaults: JobDefaults::default(),
            result: PhantomData,
        }
    }

    /// Adds an argument. One without a JSON form makes the submission fail.
    #[must_use]
    pub fn arg<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        if let Ok(args) = &mut self.args {
            match serde_json::value::to_raw_value(value) {
                Ok(arg) => args.push(arg),
                Err(error) => self.args = Err((args.len() + 1, error.to_string())),
            }
        }
        self
    }

    /// Sets the defaults, which the submission may override.
    #[must_use]
    pub fn defaults(mut self, defaults: JobDefaults) -> Self {
        self.defaults = defaults;
        self
    }

    pub(crate) fn job_defaults(&self) -> &JobDefaults {
        &self.defaults
    }

    /// The target, method and arguments, from which the [`JobInvocationResolver`] makes the stored payload.
    ///
    /// # Errors
    /// An argument without a JSON form.
    ///
    /// [`JobInvocationResolver`]: ratchet_api::spi::JobInvocationResolver
    pub fn invocation(&self) -> Result<Invocation, CallError> {
        let args = self.args.as_ref().map_err(|problem| self.argument(problem))?;
        let args = JsonText::of(args).map_err(|error| self.argument(&(0, error.to_string())))?;
        Ok(Invocation { target: self.target.to_string(), method: self.method.to_string(), args })
    }

    fn argument(&self, (place, problem): &BadArgument) -> CallError {
        let (target, method) = (self.target.to_string(), self.method.to_string());
        CallError::Argument { target, method, place: *place, problem: problem.clone() }
    }
}

impl<R> Clone for Call<R> {
    fn clone(&self) -> Self {
        Self {
            target: self.target.clone(),
            method: self.method.clone(),
            args: self.args.clone(),
            defaults: self.defaults.clone(),
            result: PhantomData,
        }
    }
}

impl<R> fmt::Debug for Call<R> {
    /// Omits the arguments, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("target", &self.target)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn arguments_are_kept_in_order_as_a_json_array() {
        let call: Call<()> = Call::new("a.B", "c").arg(&1).arg("x\"y").arg(&Option::<u8>::None);
        let Invocation { target, method, args } = call.invocation().unwrap();
        assert_eq!((target.as_str(), method.as_str(), args.as_str()), ("a.B", "c", r#"[1,"x\"y",null]"#));
        let none: Call<()> = Call::new("a.B", "c");
        assert_eq!(none.invocation().unwrap().args.as_str(), "[]");
    }

    #[test]
    fn an_argument_without_a_json_form_is_named() {
        let call: Call<()> = Call::new("a.B", "c").arg(&1).arg(&HashMap::from([((1, 2), 3)])).arg(&4);
        let error = call.invocation().unwrap_err().to_string();
        assert!(error.starts_with("argument 2 of `a.B.c` has no JSON form"), "{error}");
    }
}
