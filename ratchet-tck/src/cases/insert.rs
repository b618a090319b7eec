//! What goes in: stored whole or not at all, read back as it was given; and what is taken out again.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::{Closed, Retention};
use ratchet_api::{
    Backoff, Batch, BatchId, BatchProgress, Comparison, Condition, DeadReason, Due, Edge, EdgeState, End,
    Fence, Fire, Inserted, InvalidSubmission, Job, JobId, JobPriority, JobSpec, JobStatus, JobType, Limits,
    LogLevel, Needs, NewBatch, NewJob, NewLogLine, Outcome, QueueName, Refusal, ResultTest, Submission,
    Timestamp, Verdict,
};

use super::keys::{
    Life, cancel, connections, holding, linked, named, once, race_inserts, replacing, schedule,
};
use crate::case::cases;
use crate::fixture::{call, error, job, job_with, text};
use crate::{Fixture, Peer};

cases! { "insert";
    a_stored_job_is_pending_and_reads_back_as_it_was_given: ["insert.pending"] [14 19 20];
    every_type_priority_and_backoff_reads_back: ["insert.pending"] [14 47 151];
    a_job_is_due_after_its_delay_or_at_its_instant: ["insert.due"] [23];
    a_call_without_submissions_does_nothing: ["insert.isolated"] [];
    a_refused_submission_leaves_its_neighbours_alone: ["insert.isolated", "insert.atomic"] [169];
    a_submission_with_one_bad_job_stores_nothing_of_itself: ["insert.atomic", "insert.isolated"] [];
    an_invalid_submission_is_told_what_is_wrong_with_it: ["insert.invalid", "insert.isolated"] [];
    a_repeated_submission_is_recognised_and_changes_nothing: ["insert.replay"] [];
    a_replay_is_recognised_whatever_became_of_the_job: ["insert.replay"] [];
    a_replay_is_recognised_before_anything_else_is_checked: ["insert.replay"] [];
    a_replay_is_recognised_after_archive_and_delete: ["insert.replay", "insert.idempotent"] [12];
    the_same_submission_from_many_connections_is_stored_once: ["insert.replay", "insert.atomic"] [183];
    a_job_waits_for_as_many_parents_as_it_needs: ["insert.edges"] [155];
    a_new_edge_is_open_whatever_it_says: ["insert.edges"] [];
    an_edge_from_a_live_job_raises_its_edge_count_and_nothing_else: ["insert.edge_outside"] [];
    an_edge_from_an_unknown_job_is_refused: ["insert.edge_outside", "insert.atomic"] [];
    edges_that_arrive_together_are_all_counted: ["insert.edge_outside"] [172];
    an_edge_from_an_ended_job_is_decided_at_once: ["insert.edge_ended"] [];
    a_job_that_can_still_get_what_it_needs_waits_on: ["insert.edge_ended", "insert.edges"] [];
    a_job_that_cannot_get_what_it_needs_is_cancelled_with_its_dependents: ["insert.edge_ended"] [36];
    a_batch_child_cancelled_at_insert_counts_as_failed: ["insert.edge_ended", "insert.batch", "batch.counters"] [];
    an_edge_from_a_job_that_is_being_cancelled_never_lets_its_child_run: ["insert.edge_outside", "insert.edge_ended"] [];
    an_edge_added_while_its_parent_ends_is_never_forgotten: ["insert.edge_outside", "insert.edge_ended"] [];
    a_batch_parent_waits_for_its_children_which_are_counted: ["insert.batch"] [192];
    a_batch_without_children_is_complete_unless_it_is_open: ["insert.batch"] [];
    only_an_open_batch_takes_more_children: ["insert.batch_closed"] [];
    children_that_arrive_together_are_all_counted_until_the_batch_closes: ["insert.batch_closed", "batch.close"] [172];
    a_superseded_job_makes_way_and_hands_over_its_key: ["insert.supersede"] [155];
    superseding_cancels_what_waited_for_the_old_job: ["insert.supersede", "batch.counters"] [36];
    a_job_that_has_started_or_ended_is_not_superseded: ["insert.supersede", "insert.atomic"] [];
    a_successor_that_is_refused_leaves_the_old_job_in_place: ["insert.supersede", "insert.atomic"] [];
    a_race_to_supersede_one_job_has_one_winner: ["insert.supersede"] [];
    a_job_is_either_claimed_or_superseded_under_a_race: ["insert.supersede"] [181];
    a_fire_is_stored_once_and_moves_the_next_one: ["insert.fire_once"] [143];
    a_schedule_that_is_not_active_does_not_fire: ["insert.fire_once"] [147];
    a_race_to_fire_has_one_winner: ["insert.fire_once"] [143 145];
    only_ended_jobs_are_deleted_with_all_that_belongs_to_them: ["delete.ended"] [];
    old_dead_letters_are_purged_oldest_first: ["purge_dlq.old_failures"] [105];
}

const SECOND: Duration = Duration::from_secs(1);

/// A job with every option set.
fn elaborate() -> NewJob {
    job_with(|new| {
        new.due = Due::After(90 * SECOND);
        let spec = &mut new.spec;
        spec.job_type = JobType::Callback;
        spec.queue = named("mail ✉");
        spec.priority = JobPriority::High;
        spec.payload = call(r#"[{"b": 1,  "a":"ü"}]"#);
        spec.params = Some(ratchet_api::JsonText::parse(r#"{ "z":1, "a":2 }"#).expect("JSON"));
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

/// A job with numbers and instants at the ends of their ranges.
fn extreme() -> NewJob {
    job_with(|new| {
        new.due = Due::At(Timestamp::MAX);
        new.spec.max_retries = u32::MAX;
        new.spec.timeout = Some(Duration::from_millis(1));
        new.spec.expires_at = Some(Timestamp::MIN);
        new.spec.backoff = Backoff::Fixed(Duration::from_hours(24));
    })
}

/// Tags are a set: a store need not keep their order.
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

/// The children of a new batch, and its parent first.
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

/// The batch of a submission that was made by `batch_of`.
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

/// All that an insert could change about these jobs.
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
    let limits = Limits::default();
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
            with(|spec| spec.tags = (0..21).map(|n| named(&format!("tag {n}"))).collect()),
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

pub async fn a_job_waits_for_as_many_parents_as_it_needs(fx: Fixture) {
    let node = fx.node("a").await;
    for (needs, blocked_by) in [
        (Needs::All, 3),
        (Needs::AtLeast(3), 3),
        (Needs::AtLeast(2), 2),
        (Needs::AtLeast(1), 1),
        (Needs::AtLeast(0), 0),
    ] {
        let jobs = vec![job(), job(), job(), job_with(|new| new.needs = needs)];
        let [one, two, three, child] = ids(&linked(jobs.clone(), vec![]))[..] else { panic!("four jobs") };
        let edges = [two, one, three].map(|parent| Edge::new(parent, child, Condition::Success));

        assert_eq!(node.submit(linked(jobs, edges.to_vec())).await, Inserted::New);

        let waiting = node.job(child).await;
        assert_eq!(waiting.status, JobStatus::Pending);
        assert_eq!((waiting.blocked_by, waiting.open_parents), (blocked_by, 3), "{needs:?}");
        assert_eq!(waiting.depends_on, Some(two), "the parent of its first edge");
        for parent in [one, two, three] {
            let parent = node.job(parent).await;
            assert_eq!((parent.edge_count, parent.blocked_by, parent.depends_on), (1, 0, None));
        }
        let taken = node.store.pick_up(&node.owner, &[child]).await.expect("pick_up answers");
        assert_eq!(taken.len(), usize::from(blocked_by == 0), "{needs:?}");
    }
}

pub async fn a_new_edge_is_open_whatever_it_says(fx: Fixture) {
    let node = fx.node("a").await;
    let outside = node.insert(job()).await;
    let jobs = vec![job(), job()];
    let (parent, child) = (jobs[0].spec.id, jobs[1].spec.id);
    let mut edges = vec![
        Edge::new(parent, child, Condition::Success),
        Edge::new(outside, child, Condition::Custom("vip".into())),
    ];
    edges[0].state = EdgeState::Satisfied;
    edges[1].state = EdgeState::Refused;
    edges[1].if_ended = Some(EdgeState::Satisfied);

    assert_eq!(node.submit(linked(jobs, edges)).await, Inserted::New);

    let stored = node.store.edges_to(&[child]).await.expect("edges_to answers");
    assert_eq!(stored.iter().map(|edge| edge.state).collect::<Vec<_>>(), [EdgeState::Open; 2]);
    let waiting = node.job(child).await;
    assert_eq!((waiting.status, waiting.blocked_by, waiting.open_parents), (JobStatus::Pending, 2, 2));
}

pub async fn an_edge_from_a_live_job_raises_its_edge_count_and_nothing_else(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    // What is cancelled or dead already decides edges, though it holds its key.
    let decided = [Life::CancelRequested, Life::PausedFromFailed];
    for life in Life::LIVE.into_iter().filter(|life| !decided.contains(life)) {
        let parent = life.reach(&node, job()).await;
        let before = node.job(parent).await;
        for edges in 1..=2 {
            let child = job();
            let child_id = child.spec.id;

            assert_eq!(other.submit(after(parent, child)).await, Inserted::New, "{life:?}");

            let mut expected = before.clone();
            expected.edge_count += edges;
            assert_eq!(node.job(parent).await, expected, "{life:?}");
            let waiting = node.job(child_id).await;
            assert_eq!((waiting.blocked_by, waiting.open_parents), (1, 1), "{life:?}");
            assert_eq!(waiting.depends_on, Some(parent), "{life:?}");
        }
    }
}

pub async fn an_edge_from_an_unknown_job_is_refused(fx: Fixture) {
    let node = fx.node("a").await;
    let deleted = Life::Succeeded.reach(&node, job()).await;
    assert_eq!(node.store.delete(&[deleted]).await.expect("delete answers"), 1);
    for parent in [JobId::generate(), deleted] {
        let child = job();
        let child_id = child.spec.id;

        assert_eq!(
            node.submit(after(parent, child)).await,
            Inserted::Refused(Refusal::UnknownParent(parent))
        );

        assert_eq!(node.find(child_id).await, None);
        assert_eq!(node.store.edges_from(&[parent]).await.expect("edges_from answers"), []);
    }
}

pub async fn edges_that_arrive_together_are_all_counted(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    for round in 1..=5 {
        let parent = Life::Running.reach(&node, job()).await;
        let submissions: Vec<_> = (0..4).map(|_| after(parent, job())).collect();

        let inserted = race_inserts(&fx, &stores, &submissions).await;

        assert_eq!(inserted, vec![Inserted::New; 4], "round {round}");
        assert_eq!(node.job(parent).await.edge_count, 4, "round {round}");
        let edges = node.store.edges_from(&[parent]).await.expect("edges_from answers");
        assert_eq!(edges.len(), 4, "round {round}");
    }
}

pub async fn an_edge_from_an_ended_job_is_decided_at_once(fx: Fixture) {
    use EdgeState::{Refused, Satisfied};
    use Life::{CanceledWaiting, Failed, PausedFromFailed, Succeeded};
    let node = fx.node("a").await;
    let custom = || Condition::Custom("vip".into());
    for (life, condition, if_ended, decided) in [
        (Succeeded, Condition::Success, None, Some(Satisfied)),
        (Succeeded, Condition::Success, Some(Refused), Some(Satisfied)),
        (Failed, Condition::Success, None, Some(Refused)),
        (Failed, Condition::Failure, None, Some(Satisfied)),
        (Succeeded, Condition::Failure, None, Some(Refused)),
        (CanceledWaiting, Condition::Success, None, Some(Refused)),
        (CanceledWaiting, Condition::Failure, None, Some(Refused)),
        (CanceledWaiting, custom(), Some(Satisfied), Some(Refused)),
        (Succeeded, custom(), Some(Satisfied), Some(Satisfied)),
        (Succeeded, custom(), Some(Refused), Some(Refused)),
        (Failed, Condition::BatchFailureCount(3), Some(Satisfied), Some(Satisfied)),
        (PausedFromFailed, Condition::Failure, None, Some(Satisfied)),
        (PausedFromFailed, Condition::Success, None, Some(Refused)),
        (PausedFromFailed, custom(), None, None),
        (Succeeded, custom(), None, None),
        (Failed, Condition::BatchSuccess, None, None),
    ] {
        let row = format!("{life:?} {condition:?} {if_ended:?}");
        let parent = life.reach(&node, job()).await;
        let child = job();
        let child_id = child.spec.id;
        let mut edge = Edge::new(parent, child_id, condition);
        edge.if_ended = if_ended;

        let inserted = node.submit(linked(vec![child], vec![edge])).await;

        let Some(decided) = decided else {
            assert_eq!(inserted, Inserted::Refused(Refusal::ParentEnded(parent)), "{row}");
            assert_eq!(node.find(child_id).await, None, "{row}");
            continue;
        };
        assert_eq!(inserted, Inserted::New, "{row}");
        let edges = node.store.edges_to(&[child_id]).await.expect("edges_to answers");
        assert_eq!(edges.iter().map(|edge| edge.state).collect::<Vec<_>>(), [decided], "{row}");
        let stored = node.job(child_id).await;
        if decided == Satisfied {
            assert_eq!((stored.status, stored.blocked_by), (JobStatus::Pending, 0), "{row}");
            node.take(child_id).await;
        } else {
            assert_eq!(stored.status, JobStatus::Canceled, "{row}");
            let ending = stored.ending.expect("a cancelled job has ended");
            assert_eq!((ending.terminated_at, ending.started_at), (fx.now(), None), "{row}");
        }
    }
}

pub async fn a_job_that_can_still_get_what_it_needs_waits_on(fx: Fixture) {
    let node = fx.node("a").await;
    let succeeded = Life::Succeeded.reach(&node, job()).await;
    let failed = Life::Failed.reach(&node, job()).await;
    let (live, other) = (node.insert(job()).await, node.insert(job()).await);
    for (parents, needs, status, blocked_by) in [
        (vec![failed, live], Needs::AtLeast(1), JobStatus::Pending, 1),
        (vec![failed, succeeded], Needs::AtLeast(1), JobStatus::Pending, 0),
        (vec![succeeded, live], Needs::All, JobStatus::Pending, 1),
        (vec![succeeded, failed, live, other], Needs::AtLeast(2), JobStatus::Pending, 1),
        (vec![succeeded, failed, live, other], Needs::AtLeast(3), JobStatus::Pending, 2),
        (vec![failed, live, other], Needs::All, JobStatus::Canceled, 0),
        (vec![succeeded, failed, live, other], Needs::AtLeast(4), JobStatus::Canceled, 0),
    ] {
        let child = job_with(|new| new.needs = needs);
        let child_id = child.spec.id;
        let edges = parents.iter().map(|parent| Edge::new(*parent, child_id, Condition::Success));
        let edges: Vec<_> = edges.collect();

        assert_eq!(node.submit(linked(vec![child], edges)).await, Inserted::New);

        let row = format!("{needs:?} of {parents:?}");
        let stored = node.job(child_id).await;
        assert_eq!(stored.status, status, "{row}");
        if status == JobStatus::Pending {
            assert_eq!(stored.blocked_by, blocked_by, "{row}");
            let open = parents.iter().filter(|parent| [live, other].contains(parent)).count();
            assert_eq!(stored.open_parents as usize, open, "{row}");
        }
    }
}

pub async fn a_job_that_cannot_get_what_it_needs_is_cancelled_with_its_dependents(fx: Fixture) {
    let node = fx.node("a").await;
    let failed = Life::Failed.reach(&node, job()).await;
    let mut jobs = vec![job(), job(), job(), job(), job()];
    jobs[0].spec.business_key = Some(named("freed"));
    jobs[3].needs = Needs::AtLeast(1);
    let mut submission = linked(jobs, vec![]);
    let [first, second, third, any, alone] = ids(&submission)[..] else { panic!("five jobs") };
    let live = node.insert(job()).await;
    let edge = |parent, child| Edge::new(parent, child, Condition::Success);
    let refused = Edge::new(second, third, Condition::Failure);
    submission.edges =
        vec![edge(failed, first), edge(first, second), refused, edge(third, any), edge(live, any)];

    assert_eq!(node.submit(submission).await, Inserted::New);

    for id in [first, second, third] {
        assert_eq!(node.status(id).await, JobStatus::Canceled);
        let edges = node.store.edges_from(&[id]).await.expect("edges_from answers");
        assert!(edges.iter().all(|edge| edge.state == EdgeState::Refused), "{edges:?}");
    }
    let waiting = node.job(any).await;
    assert_eq!((waiting.status, waiting.blocked_by, waiting.open_parents), (JobStatus::Pending, 1, 1));
    assert_eq!(node.status(alone).await, JobStatus::Pending);
    let holder = node.store.find_active_by_business_key(&named("freed")).await;
    assert_eq!(holder.expect("find_active_by_business_key answers"), None);
    let claimable: Vec<_> = node.claim(10).await.into_iter().map(|claim| claim.id).collect();
    assert_eq!(claimable, [alone, live], "nothing that was cancelled can be claimed");
}

pub async fn a_batch_child_cancelled_at_insert_counts_as_failed(fx: Fixture) {
    let node = fx.node("a").await;
    let failed = Life::Failed.reach(&node, job()).await;
    let mut submission = batch_of(vec![job()], true);
    let [parent, child] = ids(&submission)[..] else { panic!("two jobs") };
    submission.edges = vec![Edge::new(failed, child, Condition::Success)];

    assert_eq!(node.submit(submission.clone()).await, Inserted::New);

    assert_eq!(node.status(child).await, JobStatus::Canceled);
    let progress = progress(&node, batch_id(&submission)).await;
    assert_eq!((progress.total, progress.completed, progress.failed), (1, 0, 1));
    node.take(parent).await;
}

/// Whether the edge is refused at once or with the parent's outcome, it is refused.
pub async fn an_edge_from_a_job_that_is_being_cancelled_never_lets_its_child_run(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    cancel(&node, claim.id).await;
    let child = job();
    let child_id = child.spec.id;

    assert_eq!(node.submit(after(claim.id, child)).await, Inserted::New);

    assert_eq!(node.claim(10).await, []);
    let outcome = Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
    assert_eq!(node.commit(outcome).await, Verdict::CanceledInstead);
    assert_eq!(node.status(child_id).await, JobStatus::Canceled);
}

/// Records success, deciding again as often as edges were added meanwhile.
async fn succeed(peer: &Peer, id: JobId, fence: Fence) {
    let mut outcome = Outcome::new(id, fence, End::Succeeded { result: None });
    for _ in 0..10 {
        match peer.commit(outcome.clone()).await {
            Verdict::Recorded(_) => return,
            Verdict::EdgesChanged(edges) => {
                outcome.edges_seen = u32::try_from(edges.len()).expect("a few edges");
            }
            other => panic!("success of {id}: {other:?}"),
        }
    }
    panic!("edges of {id} change without end");
}

pub async fn an_edge_added_while_its_parent_ends_is_never_forgotten(fx: Fixture) {
    let (worker, submitter) = (fx.node("worker").await, fx.node("submitter").await);
    for round in 0..10 {
        let claim = worker.running(job()).await;
        let child = job();
        let child_id = child.spec.id;
        let submission = after(claim.id, child);

        let answers = fx
            .race(2, |i| {
                let (peer, claim) = (if i == 0 { worker.clone() } else { submitter.clone() }, claim.clone());
                let submission = (i == 1).then(|| submission.clone());
                async move {
                    match submission {
                        Some(submission) => Some(peer.submit(submission).await),
                        None => {
                            succeed(&peer, claim.id, claim.fence).await;
                            None
                        }
                    }
                }
            })
            .await;

        assert_eq!(answers[1], Some(Inserted::New), "round {round}");
        assert_eq!(worker.job(child_id).await.blocked_by, 0, "round {round}");
        worker.take(child_id).await;
    }
}

async fn batch(peer: &Peer, id: BatchId) -> Batch {
    let mut found = peer.store.find_batches(&[id]).await.expect("find_batches answers");
    found.pop().flatten().expect("the batch exists")
}

async fn progress(peer: &Peer, id: BatchId) -> BatchProgress {
    batch(peer, id).await.progress
}

pub async fn a_batch_parent_waits_for_its_children_which_are_counted(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let mut submission = batch_of(vec![job(), job()], true);
    submission.jobs.push(job());
    let [parent, one, two, guest] = ids(&submission)[..] else { panic!("four jobs") };

    assert_eq!(node.submit(submission.clone()).await, Inserted::New);

    let stored = batch(&reader, batch_id(&submission)).await;
    assert_eq!(stored.progress, BatchProgress::new(2, true), "the guest is no child");
    assert_eq!((stored.created_at, stored.completed_at), (fx.now(), None));
    assert_eq!(reader.status(parent).await, JobStatus::Pending);
    let mut claims = node.claim(10).await;
    assert_eq!(claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), [one, two, guest]);
    claims.truncate(2);
    for claim in &claims {
        assert_eq!(node.claim(10).await, [], "the parent is blocked");
        succeed(&node, claim.id, claim.fence).await;
    }
    assert_eq!(node.claim_one().await.id, parent);
}

pub async fn a_batch_without_children_is_complete_unless_it_is_open(fx: Fixture) {
    let node = fx.node("a").await;
    let (closed, open) = (batch_of(vec![], true), batch_of(vec![], false));

    let inserted = node.store.insert(&[closed.clone(), open.clone()]).await.expect("insert answers");

    assert_eq!(inserted, [Inserted::New, Inserted::New]);
    let stored = batch(&node, batch_id(&closed)).await;
    assert_eq!((stored.progress, stored.completed_at), (BatchProgress::new(0, true), Some(fx.now())));
    let stored = batch(&node, batch_id(&open)).await;
    assert_eq!((stored.progress, stored.completed_at), (BatchProgress::new(0, false), None));
    let claimed: Vec<_> = node.claim(10).await.into_iter().map(|claim| claim.id).collect();
    assert_eq!(claimed, ids(&closed), "only the parent of the complete batch");
}

pub async fn only_an_open_batch_takes_more_children(fx: Fixture) {
    let node = fx.node("a").await;
    let (open, closed) = (batch_of(vec![job()], false), batch_of(vec![job()], true));
    let (open_id, closed_id) = (batch_id(&open), batch_id(&closed));
    for submission in [&open, &closed] {
        assert_eq!(node.submit(submission.clone()).await, Inserted::New);
    }
    let single = node.insert(job()).await;
    let first = node.take(ids(&open)[1]).await;
    succeed(&node, first.id, first.fence).await;
    let add = |batch| Submission::single(in_batch(batch, job()));

    let late = add(open_id);
    assert_eq!(node.submit(late.clone()).await, Inserted::New, "also after every child has ended");
    let mut expected = BatchProgress::new(2, false);
    expected.completed = 1;
    assert_eq!(progress(&node, open_id).await, expected);
    assert_eq!(node.job(ids(&late)[0]).await.spec.batch, Some(open_id));

    let refused = |refusal| Inserted::Refused(refusal);
    assert_eq!(node.submit(add(closed_id)).await, refused(Refusal::BatchClosed(closed_id)));
    assert_eq!(progress(&node, closed_id).await, BatchProgress::new(1, true));
    for unknown in [BatchId::of(JobId::generate()), BatchId::of(single)] {
        assert_eq!(node.submit(add(unknown)).await, refused(Refusal::UnknownBatch(unknown)));
    }
    node.store.close_batch(open_id).await.expect("close_batch answers");
    assert_eq!(node.submit(add(open_id)).await, refused(Refusal::BatchClosed(open_id)));
}

pub async fn children_that_arrive_together_are_all_counted_until_the_batch_closes(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    for round in 0..6 {
        let open = batch_of(vec![], false);
        let id = batch_id(&open);
        assert_eq!(node.submit(open).await, Inserted::New);

        let answers = fx
            .race(4, |i| {
                let store = Arc::clone(&stores[i]);
                let children = vec![
                    Submission::single(in_batch(id, job())),
                    linked(vec![in_batch(id, job()), in_batch(id, job())], vec![]),
                ];
                async move {
                    if i == 3 {
                        let closed = store.close_batch(id).await.expect("close_batch answers under a race");
                        assert!(matches!(closed, Closed::Closed(_)), "{closed:?}");
                        return Vec::new();
                    }
                    store.insert(&children).await.expect("insert answers under a race")
                }
            })
            .await;

        let mut total = 0;
        for added in answers.into_iter().filter(|added| !added.is_empty()) {
            for (answer, children) in added.into_iter().zip([1, 2]) {
                match answer {
                    Inserted::New => total += children,
                    other => assert_eq!(other, Inserted::Refused(Refusal::BatchClosed(id)), "round {round}"),
                }
            }
        }
        assert_eq!(progress(&node, id).await, BatchProgress::new(total, true), "round {round}");
    }
}

pub async fn a_superseded_job_makes_way_and_hands_over_its_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for life in [
        Life::Pending,
        Life::Scheduled,
        Life::Blocked,
        Life::Retrying,
        Life::HandedBack,
        Life::Paused,
        Life::PausedFromFailed,
    ] {
        let key = format!("{life:?}");
        let old = life.reach(&node, holding(&key)).await;
        let successor = holding(&key);
        let new = successor.spec.id;
        fx.advance(SECOND);

        assert_eq!(other.submit(replacing(old, successor)).await, Inserted::New, "{life:?}");

        let replaced = node.job(old).await;
        assert_eq!((replaced.status, replaced.superseded_by), (JobStatus::Canceled, Some(new)), "{life:?}");
        let ending = replaced.ending.expect("a cancelled job has ended");
        assert_eq!(ending.terminated_at, fx.now(), "{life:?}");
        assert_eq!(replaced.spec.business_key, Some(named(&key)), "{life:?} still tells its key");
        let holder = node.store.find_active_by_business_key(&named(&key)).await;
        assert_eq!(holder.expect("find_active_by_business_key answers"), Some(new), "{life:?}");
        assert_eq!(node.status(new).await, JobStatus::Pending, "{life:?}");
        assert_eq!(node.job(new).await.superseded_by, None, "{life:?}");
        let taken = node.store.pick_up(&node.owner, &[old]).await.expect("pick_up answers");
        assert_eq!(taken, [], "{life:?} never runs");
    }
}

pub async fn superseding_cancels_what_waited_for_the_old_job(fx: Fixture) {
    let node = fx.node("a").await;
    let parent = batch_of(vec![job()], true);
    assert_eq!(node.submit(parent.clone()).await, Inserted::New);
    let old = ids(&parent)[1];
    let follower = job();
    let follower_id = follower.spec.id;
    assert_eq!(node.submit(after(old, follower)).await, Inserted::New);

    assert_eq!(node.submit(replacing(old, job())).await, Inserted::New);

    assert_eq!(node.status(follower_id).await, JobStatus::Canceled, "nobody else would ever release it");
    let progress = progress(&node, batch_id(&parent)).await;
    assert_eq!((progress.total, progress.failed), (1, 1));
}

pub async fn a_job_that_has_started_or_ended_is_not_superseded(fx: Fixture) {
    let node = fx.node("a").await;
    for life in Life::ENDED.into_iter().chain([Life::Running, Life::CancelRequested]) {
        let old = life.reach(&node, job()).await;
        let before = traces(&node, &[old]).await;
        let successor = job();
        let new = successor.spec.id;

        let inserted = node.submit(replacing(old, successor)).await;

        let Inserted::Refused(Refusal::NotReplaceable { id, status }) = inserted else {
            panic!("{life:?}: {inserted:?}");
        };
        assert_eq!(id, old, "{life:?}");
        if life != Life::CancelRequested {
            assert_eq!(status, Some(life.status()), "{life:?}");
        }
        assert_eq!(traces(&node, &[old]).await, before, "{life:?}");
        assert_eq!(node.find(new).await, None, "{life:?}");
    }
    let unknown = JobId::generate();
    let refused = Inserted::Refused(Refusal::NotReplaceable { id: unknown, status: None });
    assert_eq!(node.submit(replacing(unknown, job())).await, refused);
}

pub async fn a_successor_that_is_refused_leaves_the_old_job_in_place(fx: Fixture) {
    let node = fx.node("a").await;
    let old = node.insert(holding("order-1")).await;
    let other = node.insert(holding("order-2")).await;
    let before = node.job(old).await;
    let successor = linked(vec![holding("order-1"), holding("order-2")], vec![]);
    let mut submission = successor.clone();
    submission.supersedes = Some(old);

    assert_eq!(node.submit(submission).await, Inserted::KeyTaken { holder: other });
    assert_eq!(node.submit(successor).await, Inserted::KeyTaken { holder: old });

    assert_eq!(node.job(old).await, before);
    let holder = node.store.find_active_by_business_key(&named("order-1")).await;
    assert_eq!(holder.expect("find_active_by_business_key answers"), Some(old));
}

pub async fn a_race_to_supersede_one_job_has_one_winner(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    for round in 0..6 {
        let key = format!("order-{round}");
        let old = node.insert(holding(&key)).await;
        let submissions: Vec<_> = (0..4).map(|_| replacing(old, holding(&key))).collect();

        let inserted = race_inserts(&fx, &stores, &submissions).await;

        let winner = node.job(old).await.superseded_by.expect("someone replaced it");
        for (submission, answer) in submissions.iter().zip(inserted) {
            let new = ids(submission)[0];
            assert_eq!(node.find(new).await.is_some(), new == winner, "round {round}");
            let sensible = match answer {
                Inserted::New => new == winner,
                Inserted::KeyTaken { holder } => new != winner && holder == winner,
                Inserted::Refused(Refusal::NotReplaceable { id, .. }) => new != winner && id == old,
                _ => false,
            };
            assert!(sensible, "round {round}: {answer:?}");
        }
    }
}

pub async fn a_job_is_either_claimed_or_superseded_under_a_race(fx: Fixture) {
    let (worker, submitter) = (fx.node("worker").await, fx.node("submitter").await);
    for round in 0..10 {
        let old = worker.insert(job()).await;
        let submission = replacing(old, job());
        let new = ids(&submission)[0];

        let answers = fx
            .race(2, |i| {
                let peer = if i == 0 { worker.clone() } else { submitter.clone() };
                let submission = (i == 1).then(|| submission.clone());
                async move {
                    match submission {
                        Some(submission) => (0, Some(peer.submit(submission).await)),
                        None => {
                            let taken = peer.store.pick_up(&peer.owner, &[old]).await;
                            (taken.expect("pick_up answers under a race").len(), None)
                        }
                    }
                }
            })
            .await;

        let replaced = worker.job(old).await;
        match (answers[0].0, answers[1].1.clone().expect("an answer")) {
            (0, Inserted::New) => assert_eq!(replaced.superseded_by, Some(new), "round {round}"),
            (1, Inserted::Refused(Refusal::NotReplaceable { .. })) => {
                assert_eq!(replaced.status, JobStatus::Running, "round {round}");
                assert_eq!(worker.find(new).await, None, "round {round}");
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
}

async fn next_fire(peer: &Peer, master: JobId) -> Option<Timestamp> {
    peer.job(master).await.recurrence.expect("a master has a schedule").next_fire
}

pub async fn a_fire_is_stored_once_and_moves_the_next_one(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let master = schedule(&fx, &node, "hourly").await;
    let neighbour = schedule(&fx, &node, "also hourly").await;
    let hour = Duration::from_hours(1);
    let (first, second, third) = (fx.now() + hour, fx.now() + 2 * hour, fx.now() + 3 * hour);
    fx.advance(hour);

    assert_eq!(node.submit(fired(master, first, Some(second))).await, Inserted::New);

    assert_eq!(next_fire(&other, master).await, Some(second));
    let due = node.store.due_recurring(10).await.expect("due_recurring answers");
    assert_eq!(due.into_iter().map(|job| job.spec.id).collect::<Vec<_>>(), [neighbour]);
    let late = fired(master, first, Some(third));
    assert_eq!(other.submit(late.clone()).await, Inserted::AlreadyFired);
    assert_eq!(node.find(ids(&late)[0]).await, None);
    assert_eq!(next_fire(&node, master).await, Some(second), "a late one moves nothing");
    assert_eq!(node.submit(fired(neighbour, first, Some(second))).await, Inserted::New, "another master");
    assert_eq!(node.submit(fired(master, second, None)).await, Inserted::New, "another instant");
    assert_eq!(next_fire(&node, master).await, None, "never again");
}

pub async fn a_schedule_that_is_not_active_does_not_fire(fx: Fixture) {
    let node = fx.node("a").await;
    let single = node.insert(job()).await;
    let paused = schedule(&fx, &node, "paused").await;
    let cancelled = schedule(&fx, &node, "cancelled").await;
    let instant = fx.now() + Duration::from_hours(1);
    node.store.pause(&[paused.into()]).await.expect("pause answers");
    let ended = node.store.cancel_recurring_by_key(&named("cancelled"), &text("gone")).await;
    assert_eq!(ended.expect("cancel_recurring_by_key answers"), 1);

    for master in [paused, cancelled, JobId::generate(), single] {
        let submission = fired(master, instant, None);
        let inserted = node.submit(submission.clone()).await;
        assert_eq!(inserted, Inserted::Refused(Refusal::MasterInactive(master)));
        assert_eq!(node.find(ids(&submission)[0]).await, None);
    }

    assert_eq!(next_fire(&node, paused).await, Some(instant), "a refused fire moves nothing");
    node.store.resume(&[paused.into()]).await.expect("resume answers");
    assert_eq!(node.submit(fired(paused, instant, None)).await, Inserted::New, "and uses nothing up");
}

pub async fn a_race_to_fire_has_one_winner(fx: Fixture) {
    let stores = connections(&fx, 5).await;
    let node = fx.node("a").await;
    let master = schedule(&fx, &node, "often").await;
    for round in 0..6 {
        let instant = fx.now();
        fx.advance(SECOND);
        let submissions: Vec<_> = (0..5).map(|_| fired(master, instant, Some(fx.now()))).collect();

        let inserted = race_inserts(&fx, &stores, &submissions).await;

        for (submission, answer) in submissions.iter().zip(&inserted) {
            let told = match node.find(ids(submission)[0]).await {
                Some(_) => Inserted::New,
                None => Inserted::AlreadyFired,
            };
            assert_eq!(*answer, told, "round {round}");
        }
        let new = inserted.iter().filter(|answer| **answer == Inserted::New).count();
        assert_eq!(new, 1, "round {round}: {inserted:?}");
        assert_eq!(next_fire(&node, master).await, Some(fx.now()), "round {round}");
    }
}

pub async fn only_ended_jobs_are_deleted_with_all_that_belongs_to_them(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let tagged = || job_with(|new| new.spec.tags = vec![named("mine")]);
    let mut ended = Vec::new();
    for life in [Life::Succeeded, Life::Failed, Life::CanceledWaiting] {
        ended.push(life.reach(&node, tagged()).await);
    }
    let mut live = Vec::new();
    for life in Life::LIVE {
        live.push(life.reach(&node, tagged()).await);
    }
    let follower = job();
    let follower_id = follower.spec.id;
    assert_eq!(node.submit(after(ended[0], follower)).await, Inserted::New);
    let log = |job| NewLogLine { job, fence: Fence::FIRST, level: LogLevel::Info, message: text("hello") };
    let lines: Vec<_> = ended.iter().chain(&live).copied().map(log).collect();
    node.store.append_logs(&lines).await.expect("append_logs answers");
    let before = node.store.find(&live).await.expect("find answers");
    assert!(!node.store.executions(ended[0]).await.expect("executions answers").is_empty());

    let mut targets = ended.clone();
    targets.extend(&live);
    targets.extend([JobId::generate(), ended[0]]);
    assert_eq!(other.store.delete(&targets).await.expect("delete answers"), 3);

    for id in &ended {
        assert_eq!(node.find(*id).await, None);
        assert_eq!(node.store.executions(*id).await.expect("executions answers"), []);
        assert_eq!(node.store.logs(*id, None, 10).await.expect("logs answers"), []);
        assert_eq!(node.store.edges_from(&[*id]).await.expect("edges_from answers"), []);
    }
    assert_eq!(node.store.edges_to(&[follower_id]).await.expect("edges_to answers"), []);
    assert_eq!(node.store.find(&live).await.expect("find answers"), before);
    live.sort();
    assert_eq!(node.store.jobs_by_tag(&named("mine"), None, 100).await.expect("an answer"), live);
    for id in live {
        assert_eq!(node.store.logs(id, None, 10).await.expect("logs answers").len(), 1);
    }
    assert_eq!(node.store.delete(&targets).await.expect("delete answers"), 0, "they are gone");
    assert_eq!(node.store.delete(&[]).await.expect("delete answers"), 0);
}

pub async fn old_dead_letters_are_purged_oldest_first(fx: Fixture) {
    let node = fx.node("a").await;
    let queue: QueueName = named("failing");
    let new = || job_with(|new| new.spec.queue = queue.clone());
    // The job with the lowest id fails last, so age and id are not the same order.
    let youngest = node.running(new()).await;
    let mut failed = Vec::new();
    for _ in 0..3 {
        failed.push(Life::Failed.reach(&node, new()).await);
        fx.advance(SECOND);
    }
    let kept = [
        Life::Succeeded.reach(&node, new()).await,
        Life::CanceledWaiting.reach(&node, new()).await,
        Life::PausedFromFailed.reach(&node, new()).await,
        Life::Pending.reach(&node, new()).await,
    ];
    node.end(&youngest, End::DeadLetter { error: error("late"), reason: DeadReason::DoNotRetry }).await;
    let remaining = async || {
        let mut rest = Vec::new();
        for id in failed.iter().chain([&youngest.id]) {
            if node.find(*id).await.is_some() {
                rest.push(*id);
            }
        }
        rest
    };
    let purge = async |retention, limit| {
        node.store.purge_dead_letters(retention, limit).await.expect("purge_dead_letters answers")
    };

    // The oldest ended exactly 3 s ago, which is not more than 3 s.
    assert_eq!(purge(3 * SECOND, 10).await, 0);
    fx.advance(2 * SECOND);
    assert_eq!(purge(2 * SECOND, 0).await, 0);
    assert_eq!(purge(2 * SECOND, 2).await, 2);
    assert_eq!(remaining().await, [failed[2], youngest.id], "the two oldest went");
    assert_eq!(purge(2 * SECOND, 10).await, 1);
    assert_eq!(remaining().await, [youngest.id], "two seconds old is not past two seconds");
    fx.advance(Duration::from_millis(1));
    assert_eq!(purge(2 * SECOND, 10).await, 1);
    assert_eq!(remaining().await, []);
    for id in kept {
        assert!(node.find(id).await.is_some());
    }
}
