//! Submissions: jobs that are stored together, and the store's verdicts on them.

use crate::{
    BatchId, Condition, Edge, InvalidName, JobId, JobSpec, JobStatus, JsonText, Limits, Needs, NewJob,
    QueueName, Timestamp,
};

/// Jobs that are stored together or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Submission {
    /// The jobs. The first one is the head: its id is the submission's.
    pub jobs: Vec<NewJob>,
    /// The edges between jobs. The child is one of `jobs`; the parent is an earlier one, or any stored job.
    pub edges: Vec<Edge>,
    /// Makes the head the parent of a new batch.
    pub batch: Option<NewBatch>,
    /// Cancels this job, if it has not started, and takes its place; may take over its business key.
    pub supersedes: Option<JobId>,
    /// This submission is one fire of a schedule.
    pub fire: Option<Fire>,
}

impl Submission {
    /// Creates a submission of one job on its own.
    pub fn single(job: NewJob) -> Self {
        Self { jobs: vec![job], ..Self::default() }
    }

    /// The head's id.
    pub fn id(&self) -> Option<JobId> {
        self.jobs.first().map(|job| job.spec.id)
    }

    /// Checks what can be checked without looking at stored jobs. Stores call it first and answer
    /// [`Refusal::Invalid`], so that one bad submission never fails its neighbours.
    pub fn validate(&self, limits: &Limits) -> Result<(), InvalidSubmission> {
        if self.jobs.is_empty() {
            return Err(InvalidSubmission::Empty);
        }
        for job in &self.jobs {
            check_job(&job.spec, limits)?;
        }
        for (at, job) in self.jobs.iter().enumerate() {
            if self.jobs[..at].iter().any(|other| other.spec.id == job.spec.id) {
                return Err(InvalidSubmission::SameIdTwice(job.spec.id));
            }
            if self.jobs[..at].iter().any(|other| shares_a_key(&other.spec, &job.spec)) {
                return Err(InvalidSubmission::SameKeyTwice(job.spec.id));
            }
            let parents = self.edges.iter().filter(|edge| edge.child == job.spec.id).count();
            if job.needs.of(parents as u32) > parents as u32 {
                return Err(InvalidSubmission::NeedsTooMany(job.spec.id));
            }
        }
        if self.batch.is_some() && self.jobs[0].needs != Needs::All {
            return Err(InvalidSubmission::BatchNeedsAll(self.jobs[0].spec.id));
        }
        self.edges.iter().try_for_each(|edge| self.check_edge(edge, limits))
    }

    /// Edges lead from stored or earlier jobs to later ones, so they cannot form a cycle.
    fn check_edge(&self, edge: &Edge, limits: &Limits) -> Result<(), InvalidSubmission> {
        let place = |id| self.jobs.iter().position(|job| job.spec.id == id);
        let Some(child) = place(edge.child) else {
            return Err(InvalidSubmission::ForeignChild(edge.child));
        };
        if place(edge.parent).is_some_and(|parent| parent >= child) {
            return Err(InvalidSubmission::EdgeBackwards { parent: edge.parent, child: edge.child });
        }
        let twin = |other: &&Edge| other.parent == edge.parent && other.child == edge.child;
        if self.edges.iter().filter(twin).count() > 1 {
            return Err(InvalidSubmission::SameEdgeTwice { parent: edge.parent, child: edge.child });
        }
        if let Some(problem) = edge.condition.problem() {
            return Err(InvalidSubmission::Condition(edge.condition.clone(), problem));
        }
        match edge.condition.to_parts().1 {
            Some(expression) => check_json("condition", &expression, limits.params_bytes, limits.json_depth),
            None => Ok(()),
        }
    }
}

fn shares_a_key(a: &JobSpec, b: &JobSpec) -> bool {
    (a.idempotency_key.is_some() && a.idempotency_key == b.idempotency_key)
        || (a.business_key.is_some() && a.business_key == b.business_key)
}

fn check_job(spec: &JobSpec, limits: &Limits) -> Result<(), InvalidSubmission> {
    let too_large = |what, len, max| Err(InvalidSubmission::TooLarge { what, len, max });
    let texts = [
        ("payload", Some(spec.payload.text()), limits.payload_bytes),
        ("params", spec.params.as_ref(), limits.params_bytes),
        ("success callback", spec.on_success.as_ref().map(|p| p.text()), limits.payload_bytes),
        ("failure callback", spec.on_failure.as_ref().map(|p| p.text()), limits.payload_bytes),
    ];
    for (what, text, max) in texts {
        let Some(text) = text else { continue };
        check_json(what, text, max, limits.json_depth)?;
    }
    let keys = [
        ("idempotency key", spec.idempotency_key.as_ref().map(|key| key.as_str()), limits.key_bytes),
        ("business key", spec.business_key.as_ref().map(|key| key.as_str()), limits.key_bytes),
    ];
    let keys = keys.into_iter().filter_map(|(what, key, max)| Some((what, key?, max)));
    let tags = spec.tags.iter().map(|tag| ("tag", tag.as_str(), limits.tag_bytes));
    if let Some((what, text, max)) = keys.chain(tags).find(|(_, text, max)| text.len() > *max) {
        return too_large(what, text.len(), max);
    }
    if spec.tags.len() > limits.tags {
        return Err(InvalidSubmission::TooManyTags { count: spec.tags.len(), max: limits.tags });
    }
    for (what, text, max) in [
        ("caller principal", &spec.caller_principal, JobSpec::MAX_PRINCIPAL),
        ("trace context", &spec.trace_context, JobSpec::MAX_TRACE_CONTEXT),
    ] {
        let Some(text) = text else { continue };
        if text.len() > max {
            return too_large(what, text.len(), max);
        }
        if text.contains('\0') {
            return Err(InvalidSubmission::Nul { what });
        }
    }
    Ok(())
}

/// Checks one JSON text against its limits: bytes as given, and nesting.
pub fn check_json(
    what: &'static str,
    text: &JsonText,
    max: usize,
    max_depth: usize,
) -> Result<(), InvalidSubmission> {
    let len = text.as_str().len();
    if len > max {
        return Err(InvalidSubmission::TooLarge { what, len, max });
    }
    match text.depth() {
        depth if depth > max_depth => Err(InvalidSubmission::TooDeep { what, depth, max: max_depth }),
        _ => Ok(()),
    }
}

impl JobSpec {
    /// The maximum length of a caller principal in bytes.
    pub const MAX_PRINCIPAL: usize = 255;
    /// The maximum length of a trace context in bytes.
    pub const MAX_TRACE_CONTEXT: usize = 512;
}

/// A batch to be stored. Its parent is the head of the submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBatch {
    /// Whether every child is in this submission. An open batch takes more children until it is closed,
    /// and its parent waits at least until then.
    pub closed: bool,
}

/// One fire of a schedule: stored at most once for a master and an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fire {
    /// The recurring master.
    pub master: JobId,
    /// The instant that the schedule named.
    pub instant: Timestamp,
    /// When the master fires next; `None` if never again.
    pub next_fire: Option<Timestamp>,
}

/// The verdict on one submission.
#[derive(Clone, Debug, PartialEq)]
pub enum Inserted {
    /// All of it is stored.
    New,
    /// Nothing was stored: this job has the idempotency key already. If it is the head's own id, an earlier
    /// insert of the same submission had succeeded and only its reply was lost.
    Existing(JobId),
    /// Nothing was stored: a live job holds the business key.
    KeyTaken {
        /// The job that holds it.
        holder: JobId,
    },
    /// Nothing was stored: this master has fired for this instant.
    AlreadyFired,
    /// Nothing was stored, for this reason.
    Refused(Refusal),
}

/// Why a submission was not stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It breaks a rule that does not depend on stored jobs.
    #[error(transparent)]
    Invalid(#[from] InvalidSubmission),
    /// A job other than the head has an id that is stored already.
    #[error("job id {0} is stored already; make a new one")]
    IdTaken(JobId),
    /// An edge names a parent that is not stored.
    #[error("the parent job {0} does not exist; submit it first or in the same submission")]
    UnknownParent(JobId),
    /// An edge names a parent that has ended, and neither its status nor `if_ended` decides the condition.
    #[error("the parent job {0} has ended; read it, evaluate the condition and set `if_ended`")]
    ParentEnded(JobId),
    /// A child names a batch that is not stored.
    #[error("the batch {0} does not exist; submit its parent first")]
    UnknownBatch(BatchId),
    /// A child names a batch that takes no more children.
    #[error("the batch {0} is closed; open a new one")]
    BatchClosed(BatchId),
    /// The job to be replaced has started or ended, or does not exist.
    #[error("job {id} cannot be replaced: it is {}", .status.map_or("unknown", JobStatus::as_str))]
    NotReplaceable {
        /// The job that was to be replaced.
        id: JobId,
        /// Its status; `None` if it does not exist.
        status: Option<JobStatus>,
    },
    /// The master of a fire was canceled or paused, or does not exist.
    #[error("the recurring job {0} is not active, so it does not fire")]
    MasterInactive(JobId),
}

/// The error for a submission that breaks a rule on its own.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSubmission {
    /// It has no job.
    #[error("a submission needs at least one job")]
    Empty,
    /// Two of its jobs have one id.
    #[error("job id {0} appears twice in one submission")]
    SameIdTwice(JobId),
    /// Two of its jobs have one idempotency key or one business key.
    #[error("job {0} has a key that an earlier job of the same submission has")]
    SameKeyTwice(JobId),
    /// The parent of a batch waits for its batch and for all of its edges.
    #[error("job {0} is the parent of a batch and must need all of its parents")]
    BatchNeedsAll(JobId),
    /// Two edges connect the same two jobs.
    #[error("two edges lead from {parent} to {child}; combine their conditions in one")]
    SameEdgeTwice {
        /// The parent of both.
        parent: JobId,
        /// The child of both.
        child: JobId,
    },
    /// An edge leads to a job that is not part of the submission.
    #[error("an edge leads to job {0}, which is not part of the submission")]
    ForeignChild(JobId),
    /// An edge leads to the same or an earlier job.
    #[error("the edge from {parent} to {child} leads backwards; list parents before their children")]
    EdgeBackwards {
        /// Listed at or after the child.
        parent: JobId,
        /// Listed at or before the parent.
        child: JobId,
    },
    /// A job needs more parents than it has.
    #[error("job {0} needs more parents than lead to it, so it would wait for ever")]
    NeedsTooMany(JobId),
    /// A condition is not valid.
    #[error("the condition {0:?} is not valid: {1}")]
    Condition(Condition, &'static str),
    /// A text is too large.
    #[error(
        "{what} has {len} bytes, at most {max} are allowed; store large data elsewhere and pass a reference"
    )]
    TooLarge {
        /// Which text.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A JSON text is nested too deeply.
    #[error("{what} is nested {depth} levels deep, at most {max} are allowed")]
    TooDeep {
        /// Which text.
        what: &'static str,
        /// Its nesting.
        depth: usize,
        /// The limit.
        max: usize,
    },
    /// More tags than allowed.
    #[error("{count} tags, at most {max} are allowed")]
    TooManyTags {
        /// How many there are.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A text holds a NUL character, which not every store can keep.
    #[error("{what} contains a NUL character")]
    Nul {
        /// Which text.
        what: &'static str,
    },
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

/// One part of a claim: at most `limit` jobs of `queue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// The queue.
    pub queue: QueueName,
    /// The most jobs to take from it.
    pub limit: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BusinessKey, IdempotencyKey, JobPayload, Tag};

    fn job() -> NewJob {
        job_with(|_| {})
    }

    fn job_with(change: impl FnOnce(&mut NewJob)) -> NewJob {
        let args = JsonText::parse("[]").unwrap();
        let mut job = NewJob::new(JobPayload::new("t", "m", &args).unwrap());
        change(&mut job);
        job
    }

    fn on_success(parent: &NewJob, child: &NewJob) -> Edge {
        Edge::new(parent.spec.id, child.spec.id, Condition::Success)
    }

    fn check(jobs: &[NewJob], edges: &[Edge]) -> Result<(), InvalidSubmission> {
        let submission = Submission { jobs: jobs.to_vec(), edges: edges.to_vec(), ..Submission::default() };
        submission.validate(&Limits::default())
    }

    #[test]
    fn a_submission_has_the_id_of_its_head() {
        let (head, second) = (job(), job());
        let id = head.spec.id;
        assert_eq!(Submission::single(head.clone()).id(), Some(id));
        let both = Submission { jobs: vec![head, second], ..Submission::default() };
        assert_eq!(both.id(), Some(id));
        assert_eq!(Submission::default().id(), None);
        assert_eq!(check(&[], &[]), Err(InvalidSubmission::Empty));
    }

    #[test]
    fn ids_and_keys_stand_once_in_a_submission() {
        let plain = job();
        assert_eq!(check(&[plain.clone(), job()], &[]), Ok(()));
        let twice = InvalidSubmission::SameIdTwice(plain.spec.id);
        assert_eq!(check(&[plain.clone(), job(), plain], &[]), Err(twice));

        let idempotent = |key: &str| job_with(|job| job.spec.idempotency_key = IdempotencyKey::new(key).ok());
        let business = |key: &str| job_with(|job| job.spec.business_key = BusinessKey::new(key).ok());
        for keyed in [idempotent as fn(&str) -> NewJob, business] {
            assert_eq!(check(&[keyed("a"), keyed("b"), job()], &[]), Ok(()));
            let again = keyed("a");
            let twice = InvalidSubmission::SameKeyTwice(again.spec.id);
            assert_eq!(check(&[keyed("a"), job(), again], &[]), Err(twice));
        }
        assert_eq!(check(&[idempotent("a"), business("a")], &[]), Ok(()), "two kinds of keys");
    }

    #[test]
    fn a_job_needs_no_more_parents_than_lead_to_it() {
        let (one, two) = (job(), job());
        for (needed, enough) in [(1, true), (2, true), (3, false)] {
            let child = job_with(|job| job.needs = Needs::AtLeast(needed));
            let edges = [on_success(&one, &child), on_success(&two, &child)];
            let expected = if enough { Ok(()) } else { Err(InvalidSubmission::NeedsTooMany(child.spec.id)) };
            assert_eq!(check(&[one.clone(), two.clone(), child], &edges), expected, "{needed}");
        }
    }

    #[test]
    fn the_parent_of_a_batch_needs_all_of_its_parents() {
        let outside = job();
        for (batch, needs, valid) in [
            (true, Needs::All, true),
            (true, Needs::AtLeast(1), false),
            (false, Needs::All, true),
            (false, Needs::AtLeast(1), true),
        ] {
            let head = job_with(|job| job.needs = needs);
            let id = head.spec.id;
            let mut submission = Submission::single(head.clone());
            submission.edges = vec![on_success(&outside, &head)];
            submission.batch = batch.then_some(NewBatch { closed: true });
            let expected = if valid { Ok(()) } else { Err(InvalidSubmission::BatchNeedsAll(id)) };
            assert_eq!(submission.validate(&Limits::default()), expected, "{batch} {needs:?}");
        }
    }

    #[test]
    fn edges_lead_forward_to_jobs_of_the_submission_and_once() {
        let (first, second, outside) = (job(), job(), job());
        let (forward, back) = (on_success(&first, &second), on_success(&second, &first));
        let both = [first.clone(), second.clone()];
        assert_eq!(check(&both, &[on_success(&outside, &second), forward.clone()]), Ok(()));
        assert_eq!(check(&both, &[on_success(&outside, &first), on_success(&outside, &second)]), Ok(()));
        let (parent, child) = (first.spec.id, second.spec.id);
        let backwards = |parent, child| Err(InvalidSubmission::EdgeBackwards { parent, child });
        assert_eq!(check(&both, &[back]), backwards(child, parent));
        assert_eq!(check(&both, &[on_success(&first, &first)]), backwards(parent, parent));
        let twice = InvalidSubmission::SameEdgeTwice { parent, child };
        assert_eq!(check(&both, &[forward.clone(), forward]), Err(twice));
        let foreign = InvalidSubmission::ForeignChild(outside.spec.id);
        assert_eq!(check(&both, &[on_success(&first, &outside)]), Err(foreign));
        let bad = Condition::Custom(String::new());
        let nameless = InvalidSubmission::Condition(bad.clone(), "a predicate needs a name");
        assert_eq!(check(&both, &[Edge::new(parent, child, bad)]), Err(nameless));
    }

    #[test]
    fn what_is_at_its_limit_is_taken_and_what_is_above_is_not() {
        let limits = Limits { tags: 2, params_bytes: 10, json_depth: 3, ..Limits::default() };
        let check = |job| Submission::single(job).validate(&limits);
        let tagged = |count: usize| {
            job_with(|job| job.spec.tags = (0..count).map(|n| Tag::new(n.to_string()).unwrap()).collect())
        };
        assert_eq!(check(tagged(2)), Ok(()));
        assert_eq!(check(tagged(3)), Err(InvalidSubmission::TooManyTags { count: 3, max: 2 }));

        let params = |text: &str| job_with(|job| job.spec.params = JsonText::parse(text).ok());
        let large = InvalidSubmission::TooLarge { what: "params", len: 11, max: 10 };
        assert_eq!(check(params("1234567890")), Ok(()));
        assert_eq!(check(params("12345678901")), Err(large));
        let deep = InvalidSubmission::TooDeep { what: "params", depth: 4, max: 3 };
        assert_eq!(check(params("[[[]]]")), Ok(()));
        assert_eq!(check(params("[[[[]]]]")), Err(deep));

        let named = |name: &str| {
            job_with(|job| {
                job.spec.business_key = BusinessKey::new(name).ok();
                job.spec.idempotency_key = IdempotencyKey::new(name).ok();
                job.spec.tags = vec![Tag::new(name).unwrap()];
            })
        };
        let narrow = |key_bytes, tag_bytes| Limits { key_bytes, tag_bytes, ..limits };
        let check_named = |name, limits| Submission::single(named(name)).validate(&limits);
        let large = |what, max| Err(InvalidSubmission::TooLarge { what, len: 4, max });
        assert_eq!(check_named("1234", narrow(4, 4)), Ok(()));
        assert_eq!(check_named("1234", narrow(3, 4)), large("idempotency key", 3));
        assert_eq!(check_named("1234", narrow(4, 3)), large("tag", 3));
        let business = job_with(|job| job.spec.business_key = BusinessKey::new("1234").ok());
        assert_eq!(Submission::single(business).validate(&narrow(3, 4)), large("business key", 3));

        let parent = job();
        let on = |predicate: &str| {
            let child = job();
            let condition = Condition::Custom(predicate.to_owned());
            let mut submission = Submission::single(child.clone());
            submission.edges = vec![Edge::new(parent.spec.id, child.spec.id, condition)];
            submission.validate(&limits)
        };
        let large = InvalidSubmission::TooLarge { what: "condition", len: 11, max: 10 };
        assert_eq!(on("12345678"), Ok(()), "its quotes count");
        assert_eq!(on("123456789"), Err(large));

        let called_by = |name: String| job_with(|job| job.spec.caller_principal = Some(name));
        let what = "caller principal";
        let long = InvalidSubmission::TooLarge { what, len: 256, max: 255 };
        assert_eq!(check(called_by("x".repeat(255))), Ok(()));
        assert_eq!(check(called_by("x".repeat(256))), Err(long));
        assert_eq!(check(called_by("a\0b".into())), Err(InvalidSubmission::Nul { what }));
    }
}
