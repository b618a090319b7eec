//! Schedules: masters that are never claimed, and fires that happen once each.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{NewRecurring, SavedRecurring};
use ratchet_api::{
    Backoff, BusinessKey, Fire, Inserted, Job, JobId, JobPriority, JobSpec, JobStatus, JobType, JsonText,
    Recurrence, Refusal, Submission, Tag, Timestamp,
};

use super::commit::{business_key, keyed};
use super::effects::set;
use crate::case::cases;
use crate::fixture::{Fixture, Peer, call, job, payload, text};

cases! { "recurring";
    a_new_schedule_holds_its_key_and_is_never_claimed: ["recurring.created"] [144 149];
    saving_again_changes_the_schedule_in_place: ["recurring.updated"] [147];
    the_next_fire_is_kept_unless_cron_or_zone_changed: ["recurring.updated"] [149];
    saving_keeps_a_schedule_paused: ["recurring.updated"] [];
    a_key_of_a_live_job_is_not_taken_over: ["recurring.created"] [144 184];
    nodes_that_save_at_once_leave_one_schedule: ["recurring.updated"] [147 185];
    due_schedules_come_earliest_first: ["recurring.due"] [];
    a_schedule_is_due_to_the_millisecond: ["recurring.due"] [];
    a_fire_stores_its_job_and_moves_the_next_fire: ["insert.fire_once"] [143];
    an_instant_fires_once: ["insert.fire_once"] [143 185];
    nodes_that_fire_at_once_store_one_job: ["insert.fire_once"] [143 185];
    a_fire_that_is_not_stored_leaves_the_schedule_alone: ["insert.fire_once", "insert.atomic"] [];
    only_an_active_schedule_fires: ["insert.fire_once"] [];
    a_schedule_without_a_next_fire_rests: ["recurring.due", "insert.fire_once"] [];
    a_canceled_schedule_frees_its_key_and_its_jobs_go_on: ["recurring.cancel"] [147 148];
    a_paused_schedule_can_be_canceled: ["recurring.cancel"] [148];
    cancel_by_key_touches_nothing_but_that_schedule: ["recurring.cancel"] [148];
    cancel_by_tag_touches_nothing_but_schedules_with_it: ["recurring.cancel_tag"] [148];
    undeclared_schedules_are_canceled: ["recurring.reconcile"] [146 147];
    a_node_that_declares_nothing_cancels_nothing: ["recurring.reconcile"] [146];
    young_schedules_are_spared_to_the_millisecond: ["recurring.reconcile"] [146];
}

const MINUTE: Duration = Duration::from_secs(60);

pub async fn a_new_schedule_holds_its_key_and_is_never_claimed(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let new = full_schedule("nightly", fx.now());
    assert_eq!(save(&node, &new).await, SavedRecurring::Created(new.spec.id));

    let read = other.job(new.spec.id).await;
    assert_eq!(read.spec, new.spec);
    assert_eq!((read.spec.job_type, read.status), (JobType::Recurring, JobStatus::Pending));
    assert_eq!((read.recurrence, read.created_at), (Some(new.recurrence), fx.now()));
    assert_eq!(holder(&other, "nightly").await, Some(new.spec.id));
    fx.advance(MINUTE);
    assert_eq!(other.claim(10).await, []);
    let picked = other.store.pick_up(&other.owner, &[new.spec.id]).await.expect("pick-up answers");
    assert_eq!(picked, []);
}

pub async fn saving_again_changes_the_schedule_in_place(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let first = schedule("nightly", fx.now() + MINUTE);
    let mut caller = first.clone();
    caller.spec.caller_principal = Some("first".into());
    save(&node, &caller).await;
    let before = node.job(first.spec.id).await;
    fx.advance(Duration::from_secs(1));
    let mut changed = full_schedule("nightly", fx.now() + MINUTE);
    changed.spec.caller_principal = Some("second".into());
    assert_eq!(save(&other, &changed).await, SavedRecurring::Updated(first.spec.id));

    let after = node.job(first.spec.id).await;
    let mut expected = changed.spec.clone();
    expected.id = first.spec.id;
    expected.caller_principal = Some("first".into());
    assert_eq!(after.spec, expected);
    assert_eq!((after.created_at, after.status), (before.created_at, JobStatus::Pending));
    assert_eq!(node.find(changed.spec.id).await, None, "there is one master");
    assert_eq!(listed(&node).await, [first.spec.id]);
    let tagged = node.store.jobs_by_tag(&tag("declared"), None, 10).await.expect("tags answer");
    assert_eq!(tagged, [first.spec.id]);
}

pub async fn the_next_fire_is_kept_unless_cron_or_zone_changed(fx: Fixture) {
    let node = fx.node("a").await;
    let (kept, given) = (fx.now() + MINUTE, fx.now() + 2 * MINUTE);
    for (key, cron, zone, expected) in [
        ("same", "0 0 2 * * *", "UTC", kept),
        ("cron", "0 0 3 * * *", "UTC", given),
        ("zone", "0 0 2 * * *", "Europe/Berlin", given),
    ] {
        save(&node, &schedule(key, kept)).await;
        let mut changed = schedule(key, given);
        changed.recurrence = Recurrence::new(cron, zone, Some(given));
        save(&node, &changed).await;
        let id = holder(&node, key).await.expect("the schedule holds its key");
        let expected = Recurrence::new(cron, zone, Some(expected));
        assert_eq!(node.job(id).await.recurrence, Some(expected), "{key}");
    }
}

pub async fn saving_keeps_a_schedule_paused(fx: Fixture) {
    let node = fx.node("a").await;
    let first = schedule("nightly", fx.now());
    save(&node, &first).await;
    node.store.pause(&[first.spec.id.into()]).await.expect("pause answers");
    let again = save(&node, &schedule("nightly", fx.now())).await;
    assert_eq!(again, SavedRecurring::Updated(first.spec.id));
    assert_eq!(node.status(first.spec.id).await, JobStatus::Paused);
    assert_eq!(due(&node, 10).await, []);
}

pub async fn a_key_of_a_live_job_is_not_taken_over(fx: Fixture) {
    let node = fx.node("a").await;
    let plain = node.insert(keyed("taken")).await;
    let refused = schedule("taken", fx.now());
    assert_eq!(save(&node, &refused).await, SavedRecurring::KeyTaken { holder: plain });
    assert_eq!(node.find(refused.spec.id).await, None);

    let master = schedule("nightly", fx.now());
    save(&node, &master).await;
    let taken = node.submit(Submission::single(keyed("nightly"))).await;
    assert_eq!(taken, Inserted::KeyTaken { holder: master.spec.id });
}

pub async fn nodes_that_save_at_once_leave_one_schedule(fx: Fixture) {
    let peers = [fx.node("a").await, fx.node("b").await, fx.node("c").await, fx.node("d").await];
    for round in 0..8 {
        let key = format!("k{round}");
        let fires = fx.now();
        let saved = fx
            .race(4, |i| {
                let (peer, new) = (peers[i].clone(), schedule(&key, fires));
                async move { save(&peer, &new).await }
            })
            .await;
        let created = saved.iter().find_map(|saved| match saved {
            SavedRecurring::Created(id) => Some(*id),
            _ => None,
        });
        let id = created.expect("one node creates it");
        let updates = saved.iter().filter(|saved| **saved == SavedRecurring::Updated(id)).count();
        assert_eq!(updates, 3, "round {round}: {saved:?}");
        assert_eq!(holder(&peers[0], &key).await, Some(id), "round {round}");
        assert_eq!(listed(&peers[0]).await.len(), round + 1);
    }
}

pub async fn due_schedules_come_earliest_first(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let seconds = Duration::from_secs;
    let mut ids = Vec::new();
    for (key, after) in [("c", 30), ("a", 10), ("later", 61), ("b", 20), ("paused", 5), ("canceled", 6)] {
        let new = schedule(key, fx.now() + seconds(after));
        save(&node, &new).await;
        ids.push(new.spec.id);
    }
    node.store.pause(&[ids[4].into()]).await.expect("pause answers");
    cancel_key(&node, "canceled").await;
    node.insert(job()).await;
    fx.advance(MINUTE);
    assert_eq!(due(&other, 10).await, [ids[1], ids[3], ids[0]]);
    assert_eq!(due(&other, 2).await, [ids[1], ids[3]]);
    assert_eq!(due(&other, 0).await, []);
    let masters = other.store.due_recurring(1).await.expect("due answers");
    assert_eq!(masters, [node.job(ids[1]).await], "they are read in full");
}

pub async fn a_schedule_is_due_to_the_millisecond(fx: Fixture) {
    let node = fx.node("a").await;
    let new = schedule("nightly", fx.now() + Duration::from_millis(2));
    save(&node, &new).await;
    fx.advance(Duration::from_millis(1));
    assert_eq!(due(&node, 1).await, []);
    fx.advance(Duration::from_millis(1));
    assert_eq!(due(&node, 1).await, [new.spec.id]);
}

pub async fn a_fire_stores_its_job_and_moves_the_next_fire(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let master = saved(&node, "nightly", fx.now()).await;
    let (instant, next) = (fx.now(), fx.now() + MINUTE);
    let submission = fire(master, instant, Some(next));
    let id = submission.id().expect("it has a head");
    assert_eq!(node.submit(submission.clone()).await, Inserted::New);

    let read = other.job(master).await;
    assert_eq!(read.recurrence.expect("it is a schedule").next_fire, Some(next));
    assert_eq!(read.status, JobStatus::Pending);
    assert_eq!(due(&other, 1).await, []);
    assert_eq!(other.claim_one().await.id, id);
    let replayed = node.submit(submission).await;
    assert!(matches!(replayed, Inserted::Existing(same) if same == id), "{replayed:?}");
    fx.advance(MINUTE);
    assert_eq!(due(&other, 1).await, [master]);
}

pub async fn an_instant_fires_once(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let master = saved(&node, "nightly", fx.now()).await;
    let (first, second, third) = (fx.now(), fx.now() + MINUTE, fx.now() + 2 * MINUTE);
    assert_eq!(node.submit(fire(master, first, Some(second))).await, Inserted::New);
    assert_eq!(node.submit(fire(master, second, Some(third))).await, Inserted::New);
    for instant in [first, second] {
        let late = fire(master, instant, Some(second));
        let id = late.id().expect("it has a head");
        assert_eq!(other.submit(late).await, Inserted::AlreadyFired);
        assert_eq!(other.find(id).await, None);
    }
    let recurrence = other.job(master).await.recurrence.expect("it is a schedule");
    assert_eq!(recurrence.next_fire, Some(third), "a late fire does not turn the schedule back");
    let twin = saved(&node, "other", fx.now()).await;
    assert_eq!(other.submit(fire(twin, first, None)).await, Inserted::New, "each schedule has its own");
}

pub async fn nodes_that_fire_at_once_store_one_job(fx: Fixture) {
    let peers = [fx.node("a").await, fx.node("b").await, fx.node("c").await, fx.node("d").await];
    let master = saved(&peers[0], "nightly", fx.now()).await;
    for round in 0..10 {
        let (instant, next) = (fx.now(), fx.now() + MINUTE);
        let inserted = fx
            .race(4, |i| {
                let (peer, submission) = (peers[i].clone(), fire(master, instant, Some(next)));
                async move { peer.submit(submission).await }
            })
            .await;
        let count = |answer: &Inserted| inserted.iter().filter(|inserted| *inserted == answer).count();
        assert_eq!((count(&Inserted::New), count(&Inserted::AlreadyFired)), (1, 3), "round {round}");
        assert_eq!(peers[0].claim(10).await.len(), 1, "round {round}");
        let recurrence = peers[0].job(master).await.recurrence.expect("it is a schedule");
        assert_eq!(recurrence.next_fire, Some(next), "round {round}");
        fx.advance(MINUTE);
    }
}

pub async fn a_fire_that_is_not_stored_leaves_the_schedule_alone(fx: Fixture) {
    let node = fx.node("a").await;
    let master = saved(&node, "nightly", fx.now()).await;
    let holder = node.insert(keyed("one at a time")).await;
    let before = node.job(master).await;
    let mut overlapping = fire(master, fx.now(), Some(fx.now() + MINUTE));
    overlapping.jobs = vec![keyed("one at a time")];
    assert_eq!(node.submit(overlapping).await, Inserted::KeyTaken { holder });
    assert_eq!(node.job(master).await, before);
    let retried = fire(master, fx.now(), Some(fx.now() + MINUTE));
    assert_eq!(node.submit(retried).await, Inserted::New, "the instant has not fired yet");
}

pub async fn only_an_active_schedule_fires(fx: Fixture) {
    let node = fx.node("a").await;
    let paused = saved(&node, "paused", fx.now()).await;
    node.store.pause(&[paused.into()]).await.expect("pause answers");
    let canceled = saved(&node, "canceled", fx.now()).await;
    cancel_key(&node, "canceled").await;
    let plain = node.insert(job()).await;
    for master in [paused, canceled, plain, JobId::generate()] {
        let before = node.find(master).await;
        let submission = fire(master, fx.now(), None);
        let id = submission.id().expect("it has a head");
        assert_eq!(node.submit(submission).await, Inserted::Refused(Refusal::MasterInactive(master)));
        assert_eq!(node.find(id).await, None);
        assert_eq!(node.find(master).await, before);
    }
}

pub async fn a_schedule_without_a_next_fire_rests(fx: Fixture) {
    let node = fx.node("a").await;
    let master = saved(&node, "last", fx.now()).await;
    assert_eq!(node.submit(fire(master, fx.now(), None)).await, Inserted::New);
    fx.advance(Fixture::LONG / 2);
    assert_eq!(due(&node, 10).await, []);
    let read = node.job(master).await;
    assert_eq!(read.status, JobStatus::Pending);
    assert_eq!(read.recurrence.expect("it is a schedule").next_fire, None);
}

pub async fn a_canceled_schedule_frees_its_key_and_its_jobs_go_on(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let master = saved(&node, "nightly", fx.now()).await;
    let first = fire(master, fx.now(), Some(fx.now() + MINUTE));
    let made = first.id().expect("it has a head");
    assert_eq!(node.submit(first).await, Inserted::New);
    assert_eq!(cancel_key(&node, "nightly").await, 1);
    assert_eq!(cancel_key(&node, "nightly").await, 0);

    let read = other.job(master).await;
    assert_eq!(read.status, JobStatus::Canceled);
    assert_eq!(read.cancel_reason.as_deref(), Some("no longer declared"));
    assert_eq!(holder(&other, "nightly").await, None);
    fx.advance(MINUTE);
    assert_eq!(due(&other, 1).await, []);
    let refused = other.submit(fire(master, fx.now(), None)).await;
    assert_eq!(refused, Inserted::Refused(Refusal::MasterInactive(master)));
    assert_eq!(other.claim_one().await.id, made, "the job that it made goes on");
    let anew = schedule("nightly", fx.now());
    assert_eq!(save(&other, &anew).await, SavedRecurring::Created(anew.spec.id));
}

pub async fn a_paused_schedule_can_be_canceled(fx: Fixture) {
    let node = fx.node("a").await;
    let master = saved(&node, "nightly", fx.now()).await;
    node.store.pause(&[master.into()]).await.expect("pause answers");
    assert_eq!(cancel_key(&node, "nightly").await, 1);
    assert_eq!(node.status(master).await, JobStatus::Canceled);
    assert_eq!(holder(&node, "nightly").await, None);
}

pub async fn cancel_by_key_touches_nothing_but_that_schedule(fx: Fixture) {
    let node = fx.node("a").await;
    let plain = node.insert(keyed("plain")).await;
    let other = saved(&node, "Nightly", fx.now()).await;
    assert_eq!(cancel_key(&node, "plain").await, 0);
    assert_eq!(cancel_key(&node, "nightly").await, 0, "keys are compared byte for byte");
    for id in [plain, other] {
        assert_eq!(node.status(id).await, JobStatus::Pending);
    }
}

pub async fn cancel_by_tag_touches_nothing_but_schedules_with_it(fx: Fixture) {
    let node = fx.node("a").await;
    let mut masters = Vec::new();
    for (key, tags) in [("a", vec!["x"]), ("b", vec!["y", "x"]), ("c", vec!["y"]), ("d", vec![])] {
        let mut new = schedule(key, fx.now());
        new.spec.tags = tags.into_iter().map(tag).collect();
        save(&node, &new).await;
        masters.push(new.spec.id);
    }
    let mut plain = job();
    plain.spec.tags = vec![tag("x")];
    let plain = node.insert(plain).await;
    let cancel = async || {
        node.store.cancel_recurring_by_tag(&tag("x"), &text("enough")).await.expect("cancel answers")
    };
    assert_eq!(cancel().await, 2);
    assert_eq!(cancel().await, 0);
    assert_eq!(listed(&node).await, masters[2..]);
    assert_eq!(node.status(masters[0]).await, JobStatus::Canceled);
    assert_eq!(node.status(plain).await, JobStatus::Pending);
}

pub async fn undeclared_schedules_are_canceled(fx: Fixture) {
    let node = fx.node("a").await;
    let mut ids = Vec::new();
    for (key, tags) in [("kept", vec![tag("declared")]), ("gone", vec![tag("declared")]), ("by hand", vec![])]
    {
        let mut new = schedule(key, fx.now());
        new.spec.tags = tags;
        save(&node, &new).await;
        ids.push(new.spec.id);
    }
    let mut plain = keyed("plain");
    plain.spec.tags = vec![tag("declared")];
    let plain = node.insert(plain).await;
    fx.advance(MINUTE);
    let keep = [business_key("kept"), business_key("never seen")];
    assert_eq!(reconcile(&node, &keep, Duration::ZERO).await, [ids[1]]);
    assert_eq!(node.status(ids[1]).await, JobStatus::Canceled);
    assert_eq!(set(&listed(&node).await), set(&[ids[0], ids[2]]));
    assert_eq!(node.status(plain).await, JobStatus::Pending);
    assert_eq!(reconcile(&node, &keep, Duration::ZERO).await, []);
}

pub async fn a_node_that_declares_nothing_cancels_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    let mut new = schedule("nightly", fx.now());
    new.spec.tags = vec![tag("declared")];
    save(&node, &new).await;
    fx.advance(MINUTE);
    assert_eq!(reconcile(&node, &[], Duration::ZERO).await, []);
    assert_eq!(node.status(new.spec.id).await, JobStatus::Pending);
}

pub async fn young_schedules_are_spared_to_the_millisecond(fx: Fixture) {
    let node = fx.node("a").await;
    let mut new = schedule("nightly", fx.now());
    new.spec.tags = vec![tag("declared")];
    save(&node, &new).await;
    let keep = [business_key("another")];
    fx.advance(MINUTE);
    assert_eq!(reconcile(&node, &keep, MINUTE).await, []);
    fx.advance(Duration::from_millis(1));
    assert_eq!(reconcile(&node, &keep, MINUTE).await, [new.spec.id]);
}

fn schedule(key: &str, next_fire: Timestamp) -> NewRecurring {
    let recurrence = Recurrence::new("0 0 2 * * *", "UTC", Some(next_fire));
    NewRecurring::new(business_key(key), JobSpec::new(payload()), recurrence)
}

/// Makes a schedule that uses every option that a fire can inherit.
fn full_schedule(key: &str, next_fire: Timestamp) -> NewRecurring {
    let mut new = schedule(key, next_fire);
    new.spec.priority = JobPriority::High;
    new.spec.payload = call(r#"[1.0, "é"]"#);
    new.spec.params = Some(JsonText::from_stored(r#"{"b":1, "a":2}"#));
    new.spec.max_retries = 3;
    new.spec.backoff = Backoff::Fixed(Duration::from_secs(1));
    new.spec.timeout = Some(Duration::from_secs(90));
    new.spec.tags = vec![tag("declared"), tag("night")];
    new.spec.on_failure = Some(call("[]"));
    new
}

fn tag(tag: &str) -> Tag {
    Tag::new(tag).expect("the tag is valid")
}

async fn save(peer: &Peer, new: &NewRecurring) -> SavedRecurring {
    peer.store.save_recurring(new).await.expect("save answers")
}

/// Stores a new schedule.
async fn saved(peer: &Peer, key: &str, next_fire: Timestamp) -> JobId {
    let new = schedule(key, next_fire);
    assert_eq!(save(peer, &new).await, SavedRecurring::Created(new.spec.id));
    new.spec.id
}

/// Makes a submission of a fire: a job of its own for this instant of a schedule.
fn fire(master: JobId, instant: Timestamp, next_fire: Option<Timestamp>) -> Submission {
    let mut submission = Submission::single(job());
    submission.fire = Some(Fire { master, instant, next_fire });
    submission
}

async fn due(peer: &Peer, limit: usize) -> Vec<JobId> {
    ids(&peer.store.due_recurring(limit).await.expect("due answers"))
}

/// Returns every schedule that has not ended.
async fn listed(peer: &Peer) -> Vec<JobId> {
    ids(&peer.store.recurring().await.expect("recurring answers"))
}

fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.spec.id).collect()
}

async fn holder(peer: &Peer, key: &str) -> Option<JobId> {
    peer.store.find_active_by_business_key(&business_key(key)).await.expect("find answers")
}

async fn cancel_key(peer: &Peer, key: &str) -> u64 {
    let reason = text("no longer declared");
    peer.store.cancel_recurring_by_key(&business_key(key), &reason).await.expect("cancel answers")
}

async fn reconcile(peer: &Peer, keep: &[BusinessKey], older_than: Duration) -> Vec<JobId> {
    let (declared, reason) = (tag("declared"), text("no longer declared"));
    let canceled = peer.store.cancel_undeclared_recurring(&declared, keep, older_than, &reason).await;
    canceled.expect("cancel answers")
}
