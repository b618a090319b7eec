//! The cause of a callback, as much of it as a job can carry.

use std::collections::BTreeMap;
use std::fmt;

use ratchet_api::{Job, JobId, JobStatus, JsonText, Limits, check_json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The mark at the end of a shortened error.
const MORE: &str = "...";

/// The cause of a callback: the job that ended, and how.
///
/// A callback carries it as its params. A part that does not fit there is left out or shortened, and named in
/// [`cut`](Self::cut); before the callback runs, it is read from the job itself, as long as that is there.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobCause {
    /// The job that ended.
    pub job_id: JobId,
    /// The status in which it ended.
    pub status: JobStatus,
    /// Its params.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Value>,
    /// Its error, sanitized, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its result, if it succeeded with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The parts that are left out or shortened, each with its full size in bytes. Usually empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut: BTreeMap<CausePart, usize>,
}

/// A part of a [`JobCause`] that may be too large to be carried along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CausePart {
    /// The job's params: left out if they do not fit.
    Params,
    /// Its error: shortened if it does not fit.
    Error,
    /// Its result: left out if it does not fit.
    Result,
}

/// Without params and result, which may hold secrets.
impl fmt::Debug for JobCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobCause")
            .field("job_id", &self.job_id)
            .field("status", &self.status)
            .field("error", &self.error)
            .field("cut", &self.cut)
            .finish_non_exhaustive()
    }
}

/// The end of a job, before it is known how much of it fits.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a> {
    pub(crate) job: JobId,
    pub(crate) params: Option<&'a JsonText>,
    pub(crate) status: JobStatus,
    pub(crate) error: Option<&'a str>,
    pub(crate) result: Option<&'a JsonText>,
}

impl Ended<'_> {
    /// The params of a callback. If not all of it fits, the result is left out first, for it can be read from the job;
    /// the error is shortened last.
    pub(crate) fn params(self, limits: &Limits) -> Option<JsonText> {
        let mut cause = self.whole();
        let fitting = |cause: &JobCause| {
            let text = JsonText::of(cause).ok()?;
            check_json("params", &text, limits.params_bytes, limits.json_depth).is_ok().then_some(text)
        };
        if let Some(text) = fitting(&cause) {
            return Some(text);
        }
        if let Some(result) = self.result {
            cause.result = None;
            cause.cut.insert(CausePart::Result, result.as_str().len());
        }
        if let Some(text) = fitting(&cause) {
            return Some(text);
        }
        if let Some(params) = self.params {
            cause.params.clear();
            cause.cut.insert(CausePart::Params, params.as_str().len());
        }
        if let Some(text) = fitting(&cause) {
            return Some(text);
        }
        if let Some(error) = self.error {
            cause.cut.insert(CausePart::Error, error.len());
            cause.error = Some(MORE.to_owned());
            let rest = JsonText::of(&cause).ok()?.as_str().len();
            cause.error = Some(shortened(error, limits.params_bytes.saturating_sub(rest)));
        }
        JsonText::of(&cause).ok()
    }

    fn whole(self) -> JobCause {
        let mut cause = JobCause {
            job_id: self.job,
            status: self.status,
            params: params_of(self.params),
            error: self.error.map(str::to_owned),
            result: None,
            cut: BTreeMap::new(),
        };
        match self.result.map(|result| (result, result.decode())) {
            Some((_, Ok(value))) => cause.result = Some(value),
            // It is nested too deep for the parser, so the callback cannot carry it.
            Some((result, Err(_))) => drop(cause.cut.insert(CausePart::Result, result.as_str().len())),
            None => {}
        }
        cause
    }
}

impl JobCause {
    /// Restores the parts that were cut, if the job is still as it ended then.
    pub(crate) fn complete(&mut self, job: &Job) {
        if job.status != self.status {
            return;
        }
        let result = job.ending.as_ref().and_then(|ending| ending.result.as_ref());
        for (part, bytes) in std::mem::take(&mut self.cut) {
            let whole = match part {
                CausePart::Params => job.spec.params.as_ref().map(JsonText::as_str),
                CausePart::Error => job.last_error.as_deref(),
                CausePart::Result => result.map(JsonText::as_str),
            };
            let same = whole.is_some_and(|whole| whole.len() == bytes);
            if !(same && self.put_back(part, job, result)) {
                self.cut.insert(part, bytes);
            }
        }
    }

    fn put_back(&mut self, part: CausePart, job: &Job, result: Option<&JsonText>) -> bool {
        match part {
            CausePart::Params => self.params = params_of(job.spec.params.as_ref()),
            CausePart::Error => self.error.clone_from(&job.last_error),
            CausePart::Result => self.result = result.and_then(|result| result.decode().ok()),
        }
        part != CausePart::Result || self.result.is_some()
    }
}

/// The params of a job by name.
pub(crate) fn params_of(params: Option<&JsonText>) -> BTreeMap<String, Value> {
    params.and_then(|params| params.decode().ok()).unwrap_or_default()
}

/// The beginning of a text, at most `room` bytes as JSON, followed by [`MORE`].
fn shortened(text: &str, room: usize) -> String {
    let mut left = room;
    let fits = |c: &char| {
        let bytes = JsonText::of(c).map_or(usize::MAX, |json| json.as_str().len() - 2);
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    let mut start: String = text.chars().take_while(fits).collect();
    start.push_str(MORE);
    start
}

#[cfg(test)]
mod tests {
    use ratchet_api::{Ending, JobPayload, NewJob, Timestamp};

    use super::*;

    fn job(params: Option<String>) -> Job {
        let payload = JobPayload::new("a.B", "c", &JsonText::from_stored("[]")).unwrap();
        let mut new = NewJob::new(payload);
        new.spec.params = params.map(JsonText::from_stored);
        Job::pending(new, 0, Timestamp::MIN)
    }

    fn ended(job: &Job) -> Ended<'_> {
        let params = job.spec.params.as_ref();
        Ended { job: job.spec.id, params, status: JobStatus::Succeeded, error: None, result: None }
    }

    fn succeeded<'a>(job: &'a Job, result: &'a JsonText) -> Ended<'a> {
        Ended { result: Some(result), ..ended(job) }
    }

    fn json(bytes: usize) -> String {
        format!("\"{}\"", "x".repeat(bytes - 2))
    }

    fn read(text: &JsonText) -> JobCause {
        text.decode().unwrap()
    }

    #[test]
    fn what_fits_is_carried_whole_and_what_does_not_is_marked() {
        let limits = Limits::default();
        for (kib, whole) in [(1, true), (15, true), (20, false), (63, false)] {
            let (job, result) = (job(None), JsonText::from_stored(json(kib * 1024)));
            let ended = succeeded(&job, &result);
            let text = ended.params(&limits).unwrap();
            assert!(text.as_str().len() <= limits.params_bytes, "{kib}");
            let cause = read(&text);
            assert_eq!((cause.result.is_some(), cause.cut.is_empty()), (whole, whole), "{kib}");
            if !whole {
                assert_eq!(cause.cut, BTreeMap::from([(CausePart::Result, kib * 1024)]));
            }
        }
    }

    #[test]
    fn a_result_that_is_nested_too_deep_is_marked() {
        let nested = |depth: usize| JsonText::from_stored("[".repeat(depth) + &"]".repeat(depth));
        for (depth, whole) in [(62, true), (64, false), (127, false), (30_000, false)] {
            let (job, result) = (job(None), nested(depth));
            let ended = succeeded(&job, &result);
            let cause = read(&ended.params(&Limits::default()).unwrap());
            assert_eq!(cause.cut.is_empty(), whole, "{depth}");
        }
    }

    #[test]
    fn params_go_before_the_error_and_the_error_is_shortened() {
        let params = format!("{{\"p\":{}}}", json(15 * 1024));
        let (job, error) = (job(Some(params.clone())), "\"\u{e9}\n".repeat(1_000));
        let ended = Ended { status: JobStatus::Failed, error: Some(&error), result: None, ..ended(&job) };
        let cause = read(&ended.params(&Limits::default()).unwrap());
        assert_eq!(cause.cut, BTreeMap::from([(CausePart::Params, params.len())]));
        assert_eq!((cause.params, cause.error), (BTreeMap::new(), Some(error.clone())));

        let few = Limits { params_bytes: 300, ..Limits::default() };
        let text = ended.params(&few).unwrap();
        assert!((290..=300).contains(&text.as_str().len()), "{}", text.as_str().len());
        let cause = read(&text);
        assert_eq!(cause.cut.get(&CausePart::Error), Some(&error.len()));
        let start = cause.error.unwrap();
        assert!(error.starts_with(start.strip_suffix(MORE).unwrap()), "{start}");
    }

    #[test]
    fn what_was_cut_is_put_back_from_the_job_as_it_ended() {
        let result = JsonText::from_stored(json(20 * 1024));
        let mut job = job(Some(format!("{{\"p\":{}}}", json(16 * 1024 - 100))));
        let ended = succeeded(&job, &result);
        let (whole, cut) = (ended.whole(), read(&ended.params(&Limits::default()).unwrap()));
        assert_eq!(cut.cut.len(), 2);
        let completed = |job: &Job| {
            let mut cause = cut.clone();
            cause.complete(job);
            cause
        };
        assert_eq!(completed(&job), cut, "it runs again");
        job.status = JobStatus::Succeeded;
        job.ending = Some(Ending::at(Timestamp::MIN));
        assert_eq!(completed(&job).cut.len(), 1, "its result is gone");
        job.ending.as_mut().unwrap().result = Some(result);
        assert_eq!(completed(&job), whole);
        job.ending.as_mut().unwrap().result = Some(JsonText::from_stored("[]"));
        assert_eq!(completed(&job).result, None, "it ended again, with another result");
    }
}
