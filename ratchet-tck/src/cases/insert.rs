//! Submissions: stored whole or not at all, and read back as given; and the removal of jobs.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

mod flow;
mod removal;
mod turnover;

use std::time::Duration;

use ratchet_api::store::Retention;
use ratchet_api::{
    Backoff, Batch, BatchId, BatchProgress, Comparison, Condition, Due, Edge, End, Fence, Fire, Inserted,
    InvalidSubmission, Job, JobId, JobPriority, JobSpec, JobStatus, JobType, JsonText, Needs, NewBatch,
    NewJob, Outcome, Refusal, ResultTest, Submission, Timestamp, Verdict,
};

use super::keys::lives::{
    Life, connections, holding, linked, named, once, race_inserts, replacing, schedule,
};
use crate::case::cases;
use crate::fixture::{call, job, job_with, text};
use crate::{Fixture, Peer};
use flow::*;
use removal::*;
use turnover::*;

cases! { "insert";
    a_stored_job_is_pending_and_reads_back_as_it_was_given: ["insert.pending"] [14 19 20];
    every_type_priority_and_backoff_reads_back: ["insert.pending"] [14 47 151];
    a_job_is_due_after_its_delay_or_at_its_instant: ["insert.due"] [23];
    a_call_without_submissions_does_nothing: ["insert.isolated"] [];
    a_refused_submission_leaves_its_neighbours_alone: ["insert.isolated", "insert.atomic"] [];
    a_submission_with_one_bad_job_stores_nothing_of_itself: ["insert.atomic", "insert.isolated"] [];
    an_invalid_submission_is_told_what_is_wrong_with_it: ["insert.invalid", "insert.isolated"] [];
    a_repeated_submission_is_recognised_and_changes_nothing: ["insert.replay"] [];
    a_replay_is_recognised_whatever_became_of_the_job: ["insert.replay"] [];
    a_replay_is_recognised_before_anything_else_is_checked: ["insert.replay"] [];
    a_replay_is_recognised_after_archive_and_delete: ["insert.replay", "insert.idempotent"] [12];
    a_stored_job_is_never_overwritten_by_a_new_submission: ["insert.id_taken", "insert.atomic"] [];
    the_same_submission_from_many_connections_is_stored_once: ["insert.replay", "insert.atomic"] [183];
    a_job_waits_for_as_many_parents_as_it_needs: ["insert.edges"] [155];
    a_new_edge_is_open_whatever_it_says: ["insert.edges"] [];
    an_edge_from_a_live_job_raises_its_edge_count_and_nothing_else: ["insert.edge_outside"] [];
    an_edge_from_an_unknown_job_is_refused: ["insert.edge_outside", "insert.atomic"] [];
    edges_that_arrive_together_are_all_counted: ["insert.edge_outside"] [172];
    an_edge_from_an_ended_job_is_decided_at_once: ["insert.edge_ended"] [];
    a_job_that_can_still_get_what_it_needs_waits_on: ["insert.edge_ended", "insert.edges"] [];
    a_job_that_cannot_get_what_it_needs_is_canceled_with_its_dependents: ["insert.edge_ended"] [36];
    a_batch_child_canceled_at_insert_counts_as_failed: ["insert.edge_ended", "insert.batch", "batch.counters"] [];
    an_edge_from_a_job_that_is_being_canceled_never_lets_its_child_run: ["insert.edge_outside", "insert.edge_ended"] [];
    an_edge_added_while_its_parent_ends_is_never_forgotten: ["insert.edge_outside", "insert.edge_ended"] [];
    a_batch_parent_waits_for_its_children_which_are_counted: ["insert.batch"] [192];
    a_batch_without_children_is_complete_unless_it_is_open: ["insert.batch"] [];
    only_an_open_batch_takes_more_children: ["insert.batch_closed"] [];
    children_that_arrive_together_are_all_counted_until_the_batch_closes: ["insert.batch_closed", "batch.close"] [172];
    a_superseded_job_makes_way_and_hands_over_its_key: ["insert.supersede"] [155];
    superseding_cancels_what_waited_for_the_old_job: ["insert.supersede", "batch.counters"] [36];
    a_successor_cannot_wait_for_what_it_replaces: ["insert.supersede", "insert.edge_ended"] [];
    a_job_that_has_started_or_ended_is_not_superseded: ["insert.supersede", "insert.atomic"] [];
    a_successor_that_is_refused_leaves_the_old_job_in_place: ["insert.supersede", "insert.atomic"] [];
    a_race_to_supersede_one_job_has_one_winner: ["insert.supersede"] [];
    a_job_is_either_claimed_or_superseded_under_a_race: ["insert.supersede"] [181];
    a_fire_is_stored_once_and_moves_the_next_one: ["insert.fire_once"] [143];
    a_schedule_that_is_not_active_does_not_fire: ["insert.fire_once"] [];
    a_race_to_fire_has_one_winner: ["insert.fire_once"] [143];
    only_ended_jobs_are_deleted_with_all_that_belongs_to_them: ["delete.ended"] [];
    old_dead_letters_are_purged_and_no_more_than_asked_for: ["purge_dlq.old_failures"] [105];
}

const SECOND: Duration = Duration::from_secs(1);

/// Makes a job with every option set.
fn elaborate() -> NewJob {
    job_with(|new| {
        new.due = Due::After(90 * SECOND);
        let spec = &mut new.spec;
        spec.job_type = JobType::Callback;
        spec.queue = named("mail ✉");
        spec.priority = JobPriority::High;
        spec.payload = call(r#"[{"b": 1,  "a":"ü"}]"#);
        spec.params = Some(JsonText::parse(r#"{ "z":1, "a":2 }"#).expect("JSON"));
        spec.max_retries = 5;
        spec.backoff = Backoff::Exponential(Duration::from_millis(1_500));
        spec.timeout = Some(Duration::from_millis(2_500));
        spec.expires_at = Some(Timestamp::from_millis(1_900_000_000_123));
        spec.idempotency_key = Some(named("Idem-1 "));
        spec.business_key = Some(named("order é"));
        spec.resource = Some(named("gateway"));
        spec.tags = vec![named("billing"), named("Billing"), named("eu-west")];
        spec.caller_principal = Some("ann@example.org".into());
        spec.trace_context = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
        spec.on_success = Some(call(r#"["done"]"#));
        spec.on_failure = Some(call(r#"["failed",  null]"#));
    })
}

/// Makes a job with numbers and instants at the ends of their ranges.
fn extreme() -> NewJob {
    job_with(|new| {
        new.due = Due::At(Timestamp::MAX);
        new.spec.max_retries = u32::MAX;
        new.spec.timeout = Some(Duration::from_millis(1));
        new.spec.expires_at = Some(Timestamp::MIN);
        new.spec.backoff = Backoff::Fixed(Duration::from_hours(24));
    })
}

/// Sorts the tags of a job: they are a set, whose order a store need not keep.
fn with_sorted_tags(mut job: Job) -> Job {
    job.spec.tags.sort();
    job
}

pub async fn a_stored_job_is_pending_and_reads_back_as_it_was_given(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    for new in [job(), elaborate(), extreme()] {
        fx.advance(Duration::from_millis(1));
        let id = writer.insert(new.clone()).await;

        let stored = with_sorted_tags(reader.job(id).await);

        assert_eq!((stored.status, stored.fence), (JobStatus::Pending, Fence::FIRST));
        assert_eq!((stored.attempts, &stored.picked_by), (0, &None));
        assert_eq!(stored, with_sorted_tags(Job::pending(new, 0, fx.now())));
    }
}

pub async fn every_type_priority_and_backoff_reads_back(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    // A schedule is stored by `save_recurring`.
    let types = JobType::ALL.into_iter().filter(|job_type| *job_type != JobType::Recurring);
    let types = types.map(|job_type| job_with(|new| new.spec.job_type = job_type));
    let priorities = JobPriority::ALL.map(|priority| job_with(|new| new.spec.priority = priority));
    let backoffs = [Backoff::None, Backoff::Fixed(SECOND), Backoff::Exponential(SECOND)]
        .map(|backoff| job_with(|new| new.spec.backoff = backoff));
    for new in types.chain(priorities).chain(backoffs) {
        let id = writer.insert(new.clone()).await;
        assert_eq!(reader.job(id).await.spec, new.spec);
    }
}

pub async fn a_job_is_due_after_its_delay_or_at_its_instant(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    for pass in 0..2 {
        let now = fx.now();
        let (past, future) = (now - Duration::from_hours(24), now + Duration::from_hours(24));
        for (due, instant) in [
            (Due::NOW, now),
            (Due::After(Duration::from_nanos(1)), now + Duration::from_millis(1)),
            (Due::After(Duration::from_millis(1)), now + Duration::from_millis(1)),
            (Due::After(90 * SECOND), now + 90 * SECOND),
            (Due::After(Duration::MAX), Timestamp::MAX),
            (Due::At(past), past),
            (Due::At(future), future),
            (Due::At(Timestamp::MIN), Timestamp::MIN),
            (Due::At(Timestamp::MAX), Timestamp::MAX),
        ] {
            let id = writer.insert(job_with(|new| new.due = due)).await;
            let stored = reader.job(id).await;
            assert_eq!((stored.scheduled_time, stored.created_at), (instant, now), "{due:?}, pass {pass}");
        }
        fx.advance(Duration::from_millis(12_345));
    }
}

pub async fn a_call_without_submissions_does_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    assert_eq!(node.store.insert(&[]).await.expect("insert answers"), []);
}

/// Makes a submission of a new batch: its parent first, then its children.
fn batch_of(children: Vec<NewJob>, closed: bool) -> Submission {
    let parent = job_with(|new| new.spec.job_type = JobType::BatchParent);
    let batch = BatchId::of(parent.spec.id);
    let children = children.into_iter().map(|child| in_batch(batch, child));
    let mut submission = linked(std::iter::once(parent).chain(children).collect(), Vec::new());
    submission.batch = Some(NewBatch { closed });
    submission
}

fn in_batch(batch: BatchId, mut child: NewJob) -> NewJob {
    child.spec.job_type = JobType::BatchChild;
    child.spec.batch = Some(batch);
    child
}

/// Returns the batch id of a submission that was made by `batch_of`.
fn batch_id(submission: &Submission) -> BatchId {
    BatchId::of(submission.id().expect("it has a head"))
}

fn after(parent: JobId, child: NewJob) -> Submission {
    let edge = Edge::new(parent, child.spec.id, Condition::Success);
    linked(vec![child], vec![edge])
}

fn fired(master: JobId, instant: Timestamp, next_fire: Option<Timestamp>) -> Submission {
    let mut submission = Submission::single(job());
    submission.fire = Some(Fire { master, instant, next_fire });
    submission
}

fn ids(submission: &Submission) -> Vec<JobId> {
    submission.jobs.iter().map(|new| new.spec.id).collect()
}

pub async fn a_refused_submission_leaves_its_neighbours_alone(fx: Fixture) {
    let node = fx.node("a").await;
    let used = node.insert(once("used")).await;
    let holder = node.insert(holding("held")).await;
    let succeeded = Life::Succeeded.reach(&node, job()).await;
    let running = Life::Running.reach(&node, job()).await;
    let closed = batch_of(vec![job()], true);
    assert_eq!(node.submit(closed.clone()).await, Inserted::New);
    let closed = batch_id(&closed);
    let unknown = JobId::generate();
    let custom = |child: NewJob| {
        let edge = Edge::new(succeeded, child.spec.id, Condition::Custom("vip".into()));
        linked(vec![child], vec![edge])
    };
    let refused = [
        (Submission::default(), Inserted::Refused(Refusal::Invalid(InvalidSubmission::Empty))),
        (Submission::single(once("used")), Inserted::Existing(used)),
        (Submission::single(holding("held")), Inserted::KeyTaken { holder }),
        (after(unknown, job()), Inserted::Refused(Refusal::UnknownParent(unknown))),
        (custom(job()), Inserted::Refused(Refusal::ParentEnded(succeeded))),
        (
            Submission::single(in_batch(BatchId::of(unknown), job())),
            Inserted::Refused(Refusal::UnknownBatch(BatchId::of(unknown))),
        ),
        (Submission::single(in_batch(closed, job())), Inserted::Refused(Refusal::BatchClosed(closed))),
        (
            replacing(running, job()),
            Inserted::Refused(Refusal::NotReplaceable { id: running, status: Some(JobStatus::Running) }),
        ),
        (fired(unknown, fx.now(), None), Inserted::Refused(Refusal::MasterInactive(unknown))),
    ];
    let (mut call, mut told, mut stored) = (Vec::new(), Vec::new(), Vec::new());
    for (submission, answer) in refused {
        let good = Submission::single(job());
        stored.extend(ids(&good).into_iter().map(|id| (id, true)));
        stored.extend(ids(&submission).into_iter().map(|id| (id, false)));
        call.extend([good, submission]);
        told.extend([Inserted::New, answer]);
    }
    let last = job();
    stored.push((last.spec.id, true));
    call.push(Submission::single(last));
    told.push(Inserted::New);

    let inserted = node.store.insert(&call).await.expect("insert answers");

    assert_eq!(inserted, told);
    for (id, is_stored) in stored {
        assert_eq!(node.find(id).await.is_some(), is_stored);
    }
}

/// Reads everything that an insert could change about these jobs.
async fn traces(peer: &Peer, ids: &[JobId]) -> (Vec<Option<Job>>, Vec<Edge>, Vec<Edge>, Vec<Option<Batch>>) {
    let batches: Vec<_> = ids.iter().copied().map(BatchId::of).collect();
    (
        peer.store.find(ids).await.expect("find answers"),
        peer.store.edges_from(ids).await.expect("edges_from answers"),
        peer.store.edges_to(ids).await.expect("edges_to answers"),
        peer.store.find_batches(&batches).await.expect("find_batches answers"),
    )
}

pub async fn a_submission_with_one_bad_job_stores_nothing_of_itself(fx: Fixture) {
    let node = fx.node("a").await;
    let used = node.insert(once("used")).await;
    let holder = node.insert(holding("held")).await;
    let running = Life::Running.reach(&node, job()).await;
    let (outside, old) = (node.insert(job()).await, node.insert(job()).await);
    let unknown = JobId::generate();

    let mut good = batch_of(vec![job(), job()], true);
    good.jobs[0].spec.idempotency_key = Some(named("head"));
    good.jobs[0].spec.business_key = Some(named("head"));
    good.jobs[0].spec.tags = vec![named("head")];
    let [head, middle, last] = ids(&good)[..] else { panic!("three jobs") };
    good.edges =
        vec![Edge::new(outside, middle, Condition::Success), Edge::new(middle, last, Condition::Success)];
    good.supersedes = Some(old);

    type Spoil = Box<dyn Fn(&mut Submission) + Send + Sync>;
    let flaws: Vec<(Spoil, Inserted)> = vec![
        (Box::new(|it| it.jobs[1] = with_id(&it.jobs[1], once("used"))), Inserted::Existing(used)),
        (Box::new(|it| it.jobs[1] = with_id(&it.jobs[1], holding("held"))), Inserted::KeyTaken { holder }),
        (
            Box::new(|it| it.jobs[1].spec.caller_principal = Some("a\0b".into())),
            Inserted::Refused(Refusal::Invalid(InvalidSubmission::Nul { what: "caller principal" })),
        ),
        (
            Box::new(move |it| it.jobs[2].spec.batch = Some(BatchId::of(unknown))),
            Inserted::Refused(Refusal::UnknownBatch(BatchId::of(unknown))),
        ),
        (
            Box::new(move |it| it.edges.push(Edge::new(unknown, last, Condition::Success))),
            Inserted::Refused(Refusal::UnknownParent(unknown)),
        ),
        (
            Box::new(move |it| it.supersedes = Some(running)),
            Inserted::Refused(Refusal::NotReplaceable { id: running, status: Some(JobStatus::Running) }),
        ),
        (
            Box::new(move |it| it.fire = fired(unknown, Timestamp::MIN, None).fire),
            Inserted::Refused(Refusal::MasterInactive(unknown)),
        ),
    ];
    let touched = [outside, old, running, used, holder, head, middle, last];
    let before = traces(&node, &touched).await;
    for (flaw, answer) in flaws {
        let mut bad = good.clone();
        flaw(&mut bad);

        assert_eq!(node.submit(bad).await, answer);

        assert_eq!(traces(&node, &touched).await, before, "{answer:?}");
        let store = &node.store;
        assert_eq!(store.find_by_idempotency_key(&named("head")).await.expect("an answer"), None);
        assert_eq!(store.find_active_by_business_key(&named("head")).await.expect("an answer"), None);
        assert_eq!(store.jobs_by_tag(&named("head"), None, 10).await.expect("an answer"), []);
    }
    assert_eq!(node.submit(good).await, Inserted::New, "without a flaw it goes in");
}

fn with_id(old: &NewJob, mut new: NewJob) -> NewJob {
    new.spec.id = old.spec.id;
    new
}

pub async fn an_invalid_submission_is_told_what_is_wrong_with_it(fx: Fixture) {
    let node = fx.node("a").await;
    let limits = node.store.limits();
    let stored = node.insert(job()).await;
    let (a, b) = (job(), job());
    let (first, second) = (a.spec.id, b.spec.id);
    let pair = |edges| linked(vec![a.clone(), b.clone()], edges);
    let edge = |parent, child| Edge::new(parent, child, Condition::Success);
    let condition = |condition| pair(vec![Edge::new(first, second, condition)]);
    let needs = |needed, edges| {
        let mut submission = pair(edges);
        submission.jobs[1].needs = Needs::AtLeast(needed);
        submission
    };
    let with = |change: fn(&mut JobSpec)| Submission::single(job_with(|new| change(&mut new.spec)));
    let pointer = ResultTest { pointer: "total".into(), op: Comparison::Eq, value: 1.into() };
    let refused_condition = |it: Condition| {
        let problem = it.problem().expect("it has a problem");
        (condition(it.clone()), InvalidSubmission::Condition(it, problem))
    };
    let same_key_twice = |with_key: fn(&str) -> NewJob| {
        let jobs = vec![a.clone(), with_key("twice"), with_key("twice")];
        let third = jobs[2].spec.id;
        (linked(jobs, vec![]), InvalidSubmission::SameKeyTwice(third))
    };
    let mut picky_batch = linked(vec![b.clone()], vec![edge(stored, second)]);
    picky_batch.jobs[0].needs = Needs::AtLeast(1);
    picky_batch.batch = Some(NewBatch { closed: true });
    let backwards = |parent, child| InvalidSubmission::EdgeBackwards { parent, child };
    let too_large = |what, len, max| InvalidSubmission::TooLarge { what, len, max };

    let table = [
        (Submission::default(), InvalidSubmission::Empty),
        (linked(vec![a.clone(), b.clone(), a.clone()], vec![]), InvalidSubmission::SameIdTwice(first)),
        same_key_twice(once),
        same_key_twice(holding),
        (picky_batch, InvalidSubmission::BatchNeedsAll(second)),
        (
            pair(vec![edge(first, second), Edge::new(first, second, Condition::Failure)]),
            InvalidSubmission::SameEdgeTwice { parent: first, child: second },
        ),
        (pair(vec![edge(first, stored)]), InvalidSubmission::ForeignChild(stored)),
        (pair(vec![edge(second, first)]), backwards(second, first)),
        (pair(vec![edge(second, second)]), backwards(second, second)),
        (needs(1, vec![]), InvalidSubmission::NeedsTooMany(second)),
        (needs(3, vec![edge(first, second), edge(stored, second)]), InvalidSubmission::NeedsTooMany(second)),
        refused_condition(Condition::BatchSuccessRate(1.01)),
        refused_condition(Condition::BatchSuccessRate(-0.5)),
        refused_condition(Condition::ResultValue(pointer)),
        refused_condition(Condition::Custom(String::new())),
        refused_condition(Condition::BatchCustom(String::new())),
        (
            Submission::single(job_with(|new| {
                new.spec.tags = (0..=limits.tags).map(|n| named(&format!("tag {n}"))).collect();
            })),
            InvalidSubmission::TooManyTags { count: limits.tags + 1, max: limits.tags },
        ),
        (
            with(|spec| spec.caller_principal = Some("p".repeat(256))),
            too_large("caller principal", 256, JobSpec::MAX_PRINCIPAL),
        ),
        (
            with(|spec| spec.trace_context = Some("t".repeat(513))),
            too_large("trace context", 513, JobSpec::MAX_TRACE_CONTEXT),
        ),
        (
            with(|spec| spec.caller_principal = Some("\0".into())),
            InvalidSubmission::Nul { what: "caller principal" },
        ),
        (
            with(|spec| spec.trace_context = Some("a\0".into())),
            InvalidSubmission::Nul { what: "trace context" },
        ),
    ];
    let good = Submission::single(job());
    let mut submissions: Vec<_> = table.iter().map(|(submission, _)| submission.clone()).collect();
    submissions.insert(9, good.clone());
    let mut told: Vec<_> =
        table.iter().map(|(_, problem)| Inserted::Refused(Refusal::Invalid(problem.clone()))).collect();
    told.insert(9, Inserted::New);

    let inserted = node.store.insert(&submissions).await.expect("insert answers");

    assert_eq!(inserted, told);
    for id in table.iter().flat_map(|(submission, _)| ids(submission)) {
        assert_eq!(node.find(id).await, None);
    }
    assert!(node.find(ids(&good)[0]).await.is_some());
    assert_eq!(node.job(stored).await.edge_count, 0);
}

pub async fn a_repeated_submission_is_recognised_and_changes_nothing(fx: Fixture) {
    let (first, second) = (fx.node("first").await, fx.node("second").await);
    let (outside, old) = (first.insert(job()).await, first.insert(job()).await);
    let mut submission = batch_of(vec![job(), job()], true);
    let [head, middle, last] = ids(&submission)[..] else { panic!("three jobs") };
    submission.jobs[0].spec.business_key = Some(named("head"));
    submission.supersedes = Some(old);
    submission.edges =
        vec![Edge::new(outside, middle, Condition::Success), Edge::new(middle, last, Condition::Success)];
    let touched = [outside, old, head, middle, last];
    assert_eq!(first.submit(submission.clone()).await, Inserted::New);
    let before = traces(&first, &touched).await;
    fx.advance(SECOND);

    let again = second.store.insert(&[submission.clone(), submission]).await.expect("insert answers");

    assert_eq!(again, [Inserted::Existing(head), Inserted::Existing(head)]);
    assert_eq!(traces(&second, &touched).await, before);
    let once_only = Submission::single(job());
    let id = once_only.id().expect("it has a head");
    let both = first.store.insert(&[once_only.clone(), once_only]).await.expect("insert answers");
    assert_eq!(both, [Inserted::New, Inserted::Existing(id)], "also within one call");
}

pub async fn a_replay_is_recognised_whatever_became_of_the_job(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for life in [
        Life::Pending,
        Life::Running,
        Life::CancelRequested,
        Life::Retrying,
        Life::Paused,
        Life::Succeeded,
        Life::Failed,
        Life::CanceledWaiting,
    ] {
        let new = job();
        let id = life.reach(&node, new.clone()).await;
        let before = node.job(id).await;
        fx.advance(SECOND);

        assert_eq!(other.submit(Submission::single(new)).await, Inserted::Existing(id), "{life:?}");

        assert_eq!(node.job(id).await, before, "{life:?}");
    }
}

pub async fn a_replay_is_recognised_before_anything_else_is_checked(fx: Fixture) {
    let node = fx.node("a").await;
    let old = node.insert(holding("taken over")).await;
    let parent = node.running(job()).await;
    let doomed = node.running(job()).await;
    let master = schedule(&fx, &node, "nightly").await;
    let open = batch_of(vec![], false);
    assert_eq!(node.submit(open.clone()).await, Inserted::New);
    let follower = job();
    let custom = Edge::new(parent.id, follower.spec.id, Condition::Custom("vip".into()));
    let submissions = [
        Submission::single(holding("own key")),
        replacing(old, holding("taken over")),
        linked(vec![follower], vec![custom]),
        after(doomed.id, job()),
        Submission::single(in_batch(batch_id(&open), job())),
        fired(master, fx.now(), Some(fx.now() + SECOND)),
    ];
    let inserted = node.store.insert(&submissions).await.expect("insert answers");
    assert_eq!(inserted, vec![Inserted::New; submissions.len()]);
    for claim in [&parent, &doomed] {
        succeed(&node, claim.id, claim.fence).await;
    }
    assert_eq!(node.store.delete(&[doomed.id]).await.expect("delete answers"), 1);
    node.store.close_batch(batch_id(&open)).await.expect("close_batch answers");
    let ended = node.store.cancel_recurring_by_key(&named("nightly"), &text("gone")).await;
    assert_eq!(ended.expect("cancel_recurring_by_key answers"), 1);

    let again = node.store.insert(&submissions).await.expect("insert answers");

    for (submission, answer) in submissions.iter().zip(again) {
        assert_eq!(answer, Inserted::Existing(ids(submission)[0]));
    }
}

pub async fn a_replay_is_recognised_after_archive_and_delete(fx: Fixture) {
    let node = fx.node("a").await;
    let (archived, deleted) = (once("archived"), once("deleted"));
    let archived_id = Life::Succeeded.reach(&node, archived.clone()).await;
    fx.advance(2 * SECOND);
    let moved = node.store.archive(&Retention { ended: SECOND, failed: SECOND }, 10).await;
    assert_eq!(moved.expect("archive answers"), 1);
    let deleted_id = Life::Failed.reach(&node, deleted.clone()).await;
    assert_eq!(node.store.delete(&[deleted_id]).await.expect("delete answers"), 1);

    let call = [Submission::single(archived), Submission::single(deleted)];
    let inserted = node.store.insert(&call).await.expect("insert answers");

    assert_eq!(inserted, [Inserted::Existing(archived_id), Inserted::Existing(deleted_id)]);
    assert_eq!((node.find(archived_id).await, node.find(deleted_id).await), (None, None));
}

pub async fn a_stored_job_is_never_overwritten_by_a_new_submission(fx: Fixture) {
    let node = fx.node("a").await;
    let running = node.running(job()).await;
    let before = node.job(running.id).await;
    let (head, twin) = (job(), job_with(|new| new.spec.id = running.id));
    let head_id = head.spec.id;
    let refused = node.submit(linked(vec![head, twin], vec![])).await;
    assert_eq!(refused, Inserted::Refused(Refusal::IdTaken(running.id)));
    assert_eq!(node.job(running.id).await, before);
    assert_eq!(node.find(head_id).await, None, "all or nothing");
}

pub async fn the_same_submission_from_many_connections_is_stored_once(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let reader = fx.node("reader").await;
    for _ in 0..5 {
        let parent = reader.insert(job()).await;
        let mut submission = batch_of(vec![job(), job(), job()], true);
        let child = submission.jobs[1].spec.id;
        submission.edges = vec![Edge::new(parent, child, Condition::Success)];
        let head = submission.id().expect("it has a head");

        let inserted = race_inserts(&fx, &stores, &vec![submission.clone(); 4]).await;

        let new = inserted.iter().filter(|answer| **answer == Inserted::New).count();
        let existing = inserted.iter().filter(|answer| **answer == Inserted::Existing(head)).count();
        assert_eq!((new, existing), (1, 3), "{inserted:?}");
        assert_eq!(reader.job(parent).await.edge_count, 1);
        assert_eq!(progress(&reader, batch_id(&submission)).await, BatchProgress::new(3, true));
    }
}

/// Records success, deciding again as often as edges were added meanwhile.
async fn succeed(peer: &Peer, id: JobId, fence: Fence) {
    let mut outcome = Outcome::new(id, fence, End::Succeeded { result: None });
    for _ in 0..10 {
        match peer.commit(outcome.clone()).await {
            Verdict::Recorded(_) => return,
            Verdict::EdgesChanged { edge_count, .. } => outcome.edges_seen = edge_count,
            other => panic!("success of {id}: {other:?}"),
        }
    }
    panic!("edges of {id} change without end");
}

async fn stored_batch(peer: &Peer, id: BatchId) -> Batch {
    let mut found = peer.store.find_batches(&[id]).await.expect("find_batches answers");
    found.pop().flatten().expect("the batch exists")
}

async fn progress(peer: &Peer, id: BatchId) -> BatchProgress {
    stored_batch(peer, id).await.progress
}
