//! The description of a job before it is submitted.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet_api::{
    Backoff, BusinessKey, Due, Enlist, IdempotencyKey, Inserted, InvalidName, JobId, JobPriority, JsonText,
    NewJob, QueueName, ResourceName, Submission, SubmitError, Tag, Timestamp,
};
use serde::Serialize;
use serde_json::Value;

use super::client::Wakeup;
use crate::{Call, CallError, Client, JobContext, JobHandle, TraceParent};

/// A job that is not submitted yet. Nothing is stored before [`submit`](Self::submit).
///
/// A mistake, such as a name that no store takes, is reported by the submission, and the first one counts.
#[must_use = "a job is stored by `submit`"]
pub struct Enqueue<R> {
    client: Client,
    job: Result<NewJob, SubmitError>,
    params: BTreeMap<String, Value>,
    supersedes: Option<JobId>,
    /// The body whose outcome it is stored with.
    within: Option<JobContext>,
    call: std::marker::PhantomData<fn() -> R>,
}

impl<R> Enqueue<R> {
    pub(crate) fn new(client: Client, call: &Call<R>) -> Self {
        let job = client.describe(call);
        Self {
            client,
            job,
            params: BTreeMap::new(),
            supersedes: None,
            within: None,
            call: std::marker::PhantomData,
        }
    }

    /// Sets how urgent it is.
    pub fn priority(self, priority: JobPriority) -> Self {
        self.with(|job| job.spec.priority = priority)
    }

    /// Sets the queue that it waits in.
    pub fn queue(self, name: impl AsRef<str>) -> Self {
        self.named(QueueName::new(name), |job, queue| job.spec.queue = queue)
    }

    /// Sets how often it is tried again after a failure.
    pub fn max_retries(self, retries: u32) -> Self {
        self.with(|job| job.spec.max_retries = retries)
    }

    /// Sets how long it waits before a retry.
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.with(|job| job.spec.backoff = backoff)
    }

    /// Sets how long an attempt may take; zero for no limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|job| job.spec.timeout = Some(timeout))
    }

    /// Starts it no sooner than this from now.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|job| job.due = Due::After(delay))
    }

    /// Starts it no sooner than this instant.
    pub fn at(self, instant: Timestamp) -> Self {
        self.with(|job| job.due = Due::At(instant))
    }

    /// Does not start it after this instant: it is canceled instead.
    pub fn expires_at(self, instant: Timestamp) -> Self {
        self.with(|job| job.spec.expires_at = Some(instant))
    }

    /// Sets the idempotency key: of all submissions with it, ever, only the first makes a job. A blank key is none.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        match not_blank(key) {
            Some(key) => {
                self.named(IdempotencyKey::new(key), |job, key| job.spec.idempotency_key = Some(key))
            }
            None => self,
        }
    }

    /// Sets the business key, which at most one live job has. A blank key is none.
    pub fn business_key(self, key: impl Into<String>) -> Self {
        match not_blank(key) {
            Some(key) => self.named(BusinessKey::new(key), |job, key| job.spec.business_key = Some(key)),
            None => self,
        }
    }

    /// Sets the resource whose permits limit how many run at once in the cluster. A blank name is none.
    pub fn resource(self, name: impl Into<String>) -> Self {
        match not_blank(name) {
            Some(name) => self.named(ResourceName::new(name), |job, name| job.spec.resource = Some(name)),
            None => self,
        }
    }

    /// Adds a tag to find it by, trimmed and in lower case. A blank word is none.
    pub fn tag(self, word: impl AsRef<str>) -> Self {
        let word = word.as_ref().trim().to_lowercase();
        if word.is_empty() {
            return self;
        }
        self.named(Tag::new(word), |job, tag| {
            if !job.spec.tags.contains(&tag) {
                job.spec.tags.push(tag);
            }
        })
    }

    /// Adds several tags to find it by.
    pub fn tags<T: AsRef<str>>(self, words: impl IntoIterator<Item = T>) -> Self {
        words.into_iter().fold(self, |job, word| job.tag(word))
    }

    /// Adds a value that the body reads by [`JobContext::param`].
    pub fn param(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        match serde_json::to_value(value) {
            Ok(value) => {
                self.params.insert(name, value);
                self
            }
            Err(error) => {
                self.wrong(SubmitError::Argument(format!("param `{name}` has no JSON form: {error}")))
            }
        }
    }

    /// Sets the trace that it belongs to: the header `traceparent` of the request that led to it. An invalid text is
    /// ignored.
    pub fn trace_parent(self, header: impl AsRef<str>) -> Self {
        match header.as_ref().parse::<TraceParent>() {
            Ok(span) => self.with(|job| job.spec.trace_context = Some(span.to_string())),
            Err(_) => self,
        }
    }

    /// Sets a callback for when the job has succeeded. It is a job of its own, with the options of its own method;
    /// [`JobContext::cause`] names the job that it follows.
    pub fn on_success<T>(self, call: &Call<T>) -> Self {
        match self.client.payload(call) {
            Ok(payload) => self.with(|job| job.spec.on_success = Some(payload)),
            Err(error) => self.wrong(error),
        }
    }

    /// Sets a callback for when the job has failed for good. It is a job of its own, with the options of its own
    /// method; [`JobContext::cause`] names the job that it follows.
    pub fn on_failure<T>(self, call: &Call<T>) -> Self {
        match self.client.payload(call) {
            Ok(payload) => self.with(|job| job.spec.on_failure = Some(payload)),
            Err(error) => self.wrong(error),
        }
    }

    /// Replaces a job that has not started, which is canceled.
    pub const fn replacing(mut self, old: JobId) -> Self {
        self.supersedes = Some(old);
        self
    }

    /// Stores it together with the outcome of the job that runs in `ctx`.
    pub(crate) fn within(self, ctx: JobContext) -> Self {
        let span = ctx.trace_context().map(|trace| trace.span.to_string());
        let mut job = self.with(|job| job.spec.trace_context = job.spec.trace_context.take().or(span));
        job.within = Some(ctx);
        job
    }

    /// Stores the job.
    ///
    /// One that was made by [`JobContext::enqueue`] is stored together with the outcome of the job whose body runs, if it
    /// succeeds. The handle has its id at once, but there is no such job before that commit, and never if the body
    /// fails: pass the id on, and do not wait for the job in the body. If its idempotency key is taken, the handle is of
    /// the job that has it. Until the commit [`JobHandle::job`] returns `None`, and
    /// waiting for its end is [`ResultError::NotYetStored`](crate::ResultError::NotYetStored).
    ///
    /// # Errors
    /// See [`SubmitError`]. A duplicate idempotency key is none, if it belongs to a job of the same target and method: the
    /// handle is of that job.
    pub async fn submit(self) -> Result<JobHandle<R>, SubmitError> {
        let (client, within) = (self.client.clone(), self.within.clone());
        let submission = self.submission()?;
        let Some(ctx) = within else {
            let inserted = client.insert(submission.clone()).await;
            client.count(&submission, inserted.as_ref().ok());
            return client.handle(&submission, inserted?).await;
        };
        client.check(&submission)?;
        client.submit_with_outcome(submission, &ctx).await
    }

    /// Stores the job inside a transaction of yours: it exists once you commit, and never if you do not. After the
    /// commit, call [`job.committed()`](JobHandle::committed), and it runs without waiting for the next poll.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub async fn submit_in<M>(self, tx: &mut impl Enlist<M>) -> Result<JobHandle<R>, SubmitError> {
        let client = self.client.clone();
        let submission = self.submission()?;
        let inserted = match client.check(&submission) {
            Ok(()) => {
                tx.insert_in(client.store(), std::slice::from_ref(&submission)).await.map_err(Into::into)
            }
            Err(error) => Err(error),
        };
        let inserted = inserted.map(|inserted| inserted.into_iter().next().unwrap_or(Inserted::New));
        client.count(&submission, inserted.as_ref().ok());
        let handle: JobHandle<R> = client.handle(&submission, inserted?).await?;
        Ok(handle.in_transaction(Wakeup::of([&submission])))
    }

    /// Describes it as one of many, which are stored at once.
    pub(super) fn one_of_many(self) -> Result<Submission, SubmitError> {
        if self.within.is_some() {
            let advice = "it is stored with the outcome of a body: submit it by itself";
            return Err(SubmitError::Argument(advice.to_owned()));
        }
        self.submission()
    }

    fn submission(self) -> Result<Submission, SubmitError> {
        let mut job = self.job?;
        if !self.params.is_empty() {
            let params =
                JsonText::of(&self.params).map_err(|error| SubmitError::Argument(error.to_string()))?;
            job.spec.params = Some(params);
        }
        let mut submission = Submission::single(job);
        submission.supersedes = self.supersedes;
        Ok(submission)
    }

    fn with(mut self, change: impl FnOnce(&mut NewJob)) -> Self {
        if let Ok(job) = &mut self.job {
            change(job);
        }
        self
    }

    fn named<T>(self, name: Result<T, InvalidName>, change: impl FnOnce(&mut NewJob, T)) -> Self {
        match name {
            Ok(name) => self.with(|job| change(job, name)),
            Err(error) => self.wrong(SubmitError::Invalid(error.into())),
        }
    }

    fn wrong(mut self, error: SubmitError) -> Self {
        if self.job.is_ok() {
            self.job = Err(error);
        }
        self
    }
}

fn not_blank(text: impl Into<String>) -> Option<String> {
    Some(text.into()).filter(|text| !text.trim().is_empty())
}

impl CallError {
    pub(crate) fn into_submit_error(self) -> SubmitError {
        SubmitError::Argument(self.to_string())
    }
}
