//! Nodes: join, beat, leave; the content of a beat's reply; paused queues.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::collections::BTreeSet;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::{NewRecurring, SavedRecurring};
use ratchet_api::{
    Beat, BeatReply, BusinessKey, Condition, Due, Edge, End, HandBackReason, JobClaim, JobId, JobSpec,
    JobStatus, Node, NodeInfo, Outcome, Owner, QueueName, Recurrence, Submission, Timestamp,
};
use tokio::runtime::Builder;

use crate::case::cases;
use crate::fixture::{job, job_with, payload, text};
use crate::{Fixture, Peer};

cases! { "node";
    a_joined_node_is_listed_with_what_it_told: ["node.join", "node.listed"] [132 130];
    nodes_are_listed_by_start_time_the_dead_included: ["node.listed"] [132];
    a_join_sent_twice_leaves_one_node: ["node.join", "node.listed"] [];
    a_beat_renews_the_lease_from_the_stores_present: ["beat.renews"] [133];
    a_lease_shorter_than_a_second_counts: ["beat.renews", "node.join"] [];
    a_lease_that_ran_out_can_be_renewed: ["beat.renews"] [];
    a_beat_of_a_node_that_is_not_known_is_refused: ["beat.refused"] [];
    a_reaped_node_is_refused_for_ever: ["beat.refused", "recover.fences"] [];
    dead_owners_that_hold_jobs_are_named: ["beat.dead"] [135];
    an_owner_is_dead_from_the_millisecond_its_lease_ends: ["beat.dead"] [];
    canceled_jobs_of_the_owner_are_named: ["beat.cancels"] [];
    a_node_is_told_whether_it_holds_jobs: ["beat.holds"] [];
    due_work_is_what_could_be_claimed_now: ["beat.due"] [];
    next_due_is_the_earliest_job_that_is_not_due_yet: ["beat.due"] [];
    next_fire_is_the_earliest_active_schedule: ["beat.due"] [149];
    how_busy_a_node_is_and_whether_it_drains_is_kept_and_decides_nothing: ["beat.load"] [64];
    the_skew_of_a_node_is_kept_and_decides_nothing: ["beat.skew"] [];
    an_idle_node_leaves_at_once: ["node.leave", "beat.refused"] [];
    a_node_that_holds_jobs_stays_to_be_recovered_from: ["node.leave"] [];
    only_nodes_that_are_long_dead_and_empty_are_purged: ["node.purge"] [];
    a_dedicated_connection_lives_on_a_runtime_of_its_own: ["dedicated.same_data"] [];
    a_paused_queue_is_paused_for_every_connection: ["queue_pause.cluster"] [];
    a_paused_queue_takes_jobs_and_lets_running_ones_end: ["queue_pause.cluster"] [];
    paused_queues_are_listed_by_name: ["queue_pause.listed"] [];
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const MILLI: Duration = Duration::from_millis(1);

async fn beat(peer: &Peer, lease: Duration) -> BeatReply {
    peer.store.beat(&Beat::new(peer.owner.clone(), lease)).await.expect("beat answers")
}

/// Beats; the beat must be accepted.
async fn told(peer: &Peer) -> BeatReply {
    let reply = beat(peer, Fixture::LONG).await;
    assert!(reply.accepted, "{reply:?}");
    reply
}

async fn nodes(peer: &Peer) -> Vec<Node> {
    peer.store.nodes().await.expect("nodes answers")
}

async fn listed(peer: &Peer, owner: &Owner) -> Option<Node> {
    nodes(peer).await.into_iter().find(|node| node.info.owner == *owner)
}

async fn recover(dead: &Owner, to: &Peer) -> Vec<JobClaim> {
    to.store.recover(from_ref(dead), &to.owner, 10).await.expect("recover answers")
}

async fn cancel(peer: &Peer, id: JobId) {
    peer.store.cancel(&[id.into()], &text("not needed")).await.expect("cancel answers");
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a valid queue name")
}

async fn set_paused(peer: &Peer, name: &str, paused: bool) -> bool {
    peer.store.set_queue_paused(&queue(name), paused).await.expect("the queue answers")
}

async fn schedule(peer: &Peer, key: &str, next_fire: Option<Timestamp>) -> JobId {
    let key = BusinessKey::new(key).expect("a valid key");
    let recurrence = Recurrence::new("0 0 2 * * *", "UTC", next_fire);
    let saved = peer.store.save_recurring(&NewRecurring::new(key, JobSpec::new(payload()), recurrence)).await;
    let Ok(SavedRecurring::Created(master)) = saved else { panic!("the schedule is new: {saved:?}") };
    master
}

/// Makes a submission of a child, due at `due`, of a job that never runs.
async fn blocked(peer: &Peer, due: Due) -> Submission {
    let mut submission = Submission::single(job_with(|new| new.due = Due::After(Fixture::LONG)));
    let child = job_with(|new| new.due = due);
    let parent = submission.jobs[0].spec.id;
    submission.edges.push(Edge::new(parent, child.spec.id, Condition::Success));
    submission.jobs.push(child);
    peer.store.insert(&[submission.clone()]).await.expect("insert answers");
    submission
}

pub async fn a_joined_node_is_listed_with_what_it_told(fx: Fixture) {
    let reader = fx.node("reader").await;
    let store = fx.connect().await;
    let mut info = NodeInfo::new(Owner::incarnate(&"long-pod-name-".repeat(10)));
    info.label = "long-pod-name-".repeat(10);
    info.version = "1.2.3+build é".to_owned();
    info.methods = vec!["mail.Sender.send".to_owned(), "billing.PaymentService.pay".to_owned()];
    info.queues = vec!["default".to_owned(), "übrig, \"x\"".to_owned()];
    fx.advance(SECOND);
    store.join(&info, HOUR).await.expect("a node joins");
    assert_eq!(listed(&reader, &info.owner).await, Some(Node::joined(info, fx.now(), HOUR)));
}

pub async fn nodes_are_listed_by_start_time_the_dead_included(fx: Fixture) {
    let mut started = Vec::new();
    for (label, lease) in [("z", HOUR), ("m", MILLI), ("a", HOUR)] {
        started.push(fx.node_with_lease(label, lease).await);
        fx.advance(SECOND);
    }
    let [first, dead, last] = started.as_slice() else { panic!("three nodes") };
    let listed = nodes(last).await;
    let owners: Vec<_> = listed.iter().map(|node| &node.info.owner).collect();
    assert_eq!(owners, [&first.owner, &dead.owner, &last.owner]);
    let alive: Vec<_> = listed.iter().map(|node| node.is_alive(fx.now())).collect();
    assert_eq!(alive, [true, false, true]);
}

pub async fn a_join_sent_twice_leaves_one_node(fx: Fixture) {
    let node = fx.node("node").await;
    let again = fx.connect().await;
    again.join(&NodeInfo::new(node.owner.clone()), HOUR).await.expect("whoever lost a reply sends it again");
    assert_eq!(nodes(&node).await.len(), 1);
    assert!(beat(&node, HOUR).await.accepted);
}

pub async fn a_beat_renews_the_lease_from_the_stores_present(fx: Fixture) {
    let (node, reader) = (fx.node_with_lease("node", HOUR).await, fx.node("reader").await);
    let joined = fx.now();
    fx.advance(SECOND);
    let mut signal = Beat::new(node.owner.clone(), SECOND);
    (signal.running, signal.slots, signal.node_time) = (3, 8, fx.now());
    let reply = node.store.beat(&signal).await.expect("beat answers");
    assert_eq!((reply.accepted, reply.db_now), (true, fx.now()));

    let row = listed(&reader, &node.owner).await.expect("it is listed");
    assert_eq!((row.started_at, row.heartbeat_at, row.lease_until), (joined, fx.now(), fx.now() + SECOND));
    assert_eq!((row.running, row.slots, row.reaped), (3, 8, false));
    let id = node.insert(job()).await;
    fx.advance(SECOND);
    assert_eq!(node.claim(1).await, [], "the newest beat counts, also if it shortens the lease");
    assert_eq!(reader.claim_one().await.id, id);
}

pub async fn how_busy_a_node_is_and_whether_it_drains_is_kept_and_decides_nothing(fx: Fixture) {
    let (node, reader) = (fx.node("node").await, fx.node("reader").await);
    let row = listed(&reader, &node.owner).await.expect("it is listed");
    assert_eq!((row.running, row.slots, row.draining), (0, 0, false));
    for (running, slots, draining) in [(3, 8, false), (2, 8, true), (0, 9, true), (1, 9, false)] {
        let mut signal = Beat::new(node.owner.clone(), HOUR);
        (signal.running, signal.slots, signal.draining) = (running, slots, draining);
        assert!(node.store.beat(&signal).await.expect("beat answers").accepted);
        let row = listed(&reader, &node.owner).await.expect("it is listed");
        assert_eq!((row.running, row.slots, row.draining), (running, slots, draining));
        let id = reader.insert(job()).await;
        assert_eq!(node.claim_one().await.id, id, "whether it claims is up to the node");
    }
    let other = listed(&node, &reader.owner).await.expect("it is listed");
    assert!(!other.draining, "another's beat is its own");
}

pub async fn a_lease_shorter_than_a_second_counts(fx: Fixture) {
    let quarter = Duration::from_millis(250);
    let node = fx.node_with_lease("node", quarter).await;
    for _ in 0..3 {
        fx.advance(quarter - MILLI);
        let claim = node.running(job()).await;
        node.end(&claim, End::Succeeded { result: None }).await;
        assert!(beat(&node, quarter).await.accepted);
    }
    let waiting = node.insert(job()).await;
    fx.advance(quarter);
    assert_eq!(node.claim(1).await, [], "not a millisecond longer");

    // Rounded up, so that a short lease never becomes none at all.
    assert!(beat(&node, Duration::from_micros(1)).await.accepted);
    assert_eq!(node.claim_one().await.id, waiting);
}

pub async fn a_lease_that_ran_out_can_be_renewed(fx: Fixture) {
    let (node, other) = (fx.node_with_lease("node", SECOND).await, fx.node("other").await);
    let held = node.running(job()).await;
    fx.advance(HOUR);
    assert_eq!(told(&other).await.dead, from_ref(&node.owner), "it counts as dead meanwhile");
    assert!(beat(&node, SECOND).await.accepted, "nobody took its jobs");
    assert_eq!(told(&other).await.dead, []);
    assert_eq!(recover(&node.owner, &other).await, []);
    node.end(&held, End::Succeeded { result: None }).await;
    node.running(job()).await;
}

pub async fn a_beat_of_a_node_that_is_not_known_is_refused(fx: Fixture) {
    let known = fx.node("known").await;
    let stranger = Peer { store: fx.connect().await, owner: Owner::incarnate("known") };
    known.insert(job()).await;
    for _ in 0..2 {
        let reply = beat(&stranger, HOUR).await;
        assert_eq!((reply.accepted, reply.db_now), (false, fx.now()));
    }
    assert_eq!(listed(&known, &stranger.owner).await, None, "a beat makes nobody known");
    assert_eq!(stranger.claim(1).await, []);
}

pub async fn a_reaped_node_is_refused_for_ever(fx: Fixture) {
    let (node, other) = (fx.node_with_lease("node", SECOND).await, fx.node("other").await);
    node.running(job()).await;
    fx.advance(SECOND);
    let moved = recover(&node.owner, &other).await;
    assert_eq!(moved.len(), 1);
    assert!(!beat(&node, HOUR).await.accepted);
    assert!(listed(&other, &node.owner).await.is_some_and(|row| row.reaped && !row.is_alive(fx.now())));

    other.end(&moved[0], End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Crashed }).await;
    assert!(!beat(&node, HOUR).await.accepted, "also when its jobs are settled");
    // A join that was under way for long must not bring the node back; whether it is an error is left open.
    let _ = node.store.join(&NodeInfo::new(node.owner.clone()), HOUR).await;
    assert!(!beat(&node, HOUR).await.accepted, "also after a late join");
    assert_eq!(node.claim(1).await, []);
    fx.advance(HOUR);
    other.store.purge_nodes(SECOND).await.expect("purge answers");
    assert!(!beat(&node, HOUR).await.accepted, "also once it is forgotten");
}

pub async fn dead_owners_that_hold_jobs_are_named(fx: Fixture) {
    let observer = fx.node_with_lease("observer", SECOND).await;
    let own = observer.running(job()).await;
    let mut dead = BTreeSet::new();
    for label in ["first", "second"] {
        let node = fx.node_with_lease(label, SECOND).await;
        node.running(job()).await;
        node.running(job()).await;
        dead.insert(node.owner);
    }
    let idle = fx.node_with_lease("idle", SECOND).await;
    let finished = fx.node_with_lease("finished", SECOND).await;
    let done = finished.running(job()).await;
    finished.end(&done, End::Succeeded { result: None }).await;
    let alive = fx.node("alive").await;
    alive.running(job()).await;

    assert_eq!(told(&alive).await.dead, [], "every lease runs");
    fx.advance(SECOND);
    let named = told(&observer).await.dead;
    assert_eq!(named.len(), dead.len(), "each once, not oneself: {named:?}, {}", own.id);
    assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), dead, "not {}", idle.owner);
}

pub async fn an_owner_is_dead_from_the_millisecond_its_lease_ends(fx: Fixture) {
    let observer = fx.node("observer").await;
    let node = fx.node_with_lease("node", Duration::from_millis(300)).await;
    node.running(job()).await;
    fx.advance(Duration::from_millis(299));
    assert_eq!(told(&observer).await.dead, []);
    fx.advance(MILLI);
    assert_eq!(told(&observer).await.dead, from_ref(&node.owner));
    let moved = recover(&node.owner, &observer).await;
    assert_eq!(moved.len(), 1);
    assert_eq!(told(&observer).await.dead, [], "it holds nothing any more");
}

pub async fn canceled_jobs_of_the_owner_are_named(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    let (kept, stopped, too) =
        (node.running(job()).await, node.running(job()).await, node.running(job()).await);
    let (foreign, waiting) = (other.running(job()).await, node.insert(job()).await);
    for id in [stopped.id, too.id, foreign.id, waiting] {
        cancel(&other, id).await;
    }
    let named: BTreeSet<_> = told(&node).await.cancel_requested.into_iter().collect();
    assert_eq!(named, BTreeSet::from([stopped.id, too.id]), "not {}", kept.id);
    assert_eq!(told(&other).await.cancel_requested, [foreign.id]);

    node.commit(Outcome::new(stopped.id, stopped.fence, End::Succeeded { result: None })).await;
    assert_eq!(told(&node).await.cancel_requested, [too.id], "a settled one is not named");
}

pub async fn a_node_is_told_whether_it_holds_jobs(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    let done = || End::Succeeded { result: None };
    let holds = async || (told(&node).await.holds_jobs, told(&other).await.holds_jobs);
    node.insert(job()).await;
    assert_eq!(holds().await, (false, false), "it waits");
    let claims = [node.claim_one().await, node.running(job()).await];
    assert_eq!(holds().await, (true, false));
    node.store.cancel(&[claims[0].id.into()], &text("stop")).await.expect("cancel answers");
    node.end(&claims[1], done()).await;
    assert_eq!(holds().await, (true, false), "one is left, though it is to stop");
    node.commit(Outcome::new(claims[0].id, claims[0].fence, done())).await;
    assert_eq!(holds().await, (false, false));
}

pub async fn due_work_is_what_could_be_claimed_now(fx: Fixture) {
    let (node, worker) = (fx.node("node").await, fx.node("worker").await);
    assert!(!told(&node).await.due_work, "nothing is stored");

    let future = node.insert(job_with(|new| new.due = Due::After(SECOND))).await;
    assert!(!told(&node).await.due_work, "not due yet");
    fx.advance(SECOND);
    assert!(told(&node).await.due_work, "due now");
    let claim = worker.take(future).await;
    assert!(!told(&node).await.due_work, "running");
    cancel(&node, future).await;
    assert!(!told(&node).await.due_work, "running, asked to be canceled");
    worker.commit(Outcome::new(future, claim.fence, End::Succeeded { result: None })).await;
    assert!(!told(&node).await.due_work, "ended");

    let paused = node.insert(job()).await;
    node.store.pause(&[paused.into()]).await.expect("pause answers");
    assert!(!told(&node).await.due_work, "paused");
    blocked(&node, Due::NOW).await;
    assert!(!told(&node).await.due_work, "blocked");
    schedule(&node, "nightly", Some(fx.now())).await;
    assert!(!told(&node).await.due_work, "a schedule is no job to claim");

    let elsewhere = node.insert(job_with(|new| new.spec.queue = queue("mail"))).await;
    assert!(told(&node).await.due_work, "any queue counts");
    set_paused(&node, "mail", true).await;
    assert!(!told(&node).await.due_work, "but not a paused one");
    set_paused(&node, "mail", false).await;
    assert!(told(&node).await.due_work);
    cancel(&node, elsewhere).await;
    assert!(!told(&node).await.due_work, "canceled");
}

pub async fn next_due_is_the_earliest_job_that_is_not_due_yet(fx: Fixture) {
    let (node, worker) = (fx.node("node").await, fx.node("worker").await);
    let start = fx.now();
    let at = |seconds| start + SECOND * seconds;
    let in_queue = |name: &'static str, seconds| {
        job_with(move |new| {
            new.spec.queue = queue(name);
            new.due = Due::After(SECOND * seconds);
        })
    };
    assert_eq!(told(&node).await.next_due, None, "nothing is stored");
    schedule(&node, "nightly", Some(at(1))).await;
    assert_eq!(told(&node).await.next_due, None, "a schedule is no job to claim");

    let late = node.insert(in_queue("default", 50)).await;
    assert_eq!(told(&node).await.next_due, Some(at(50)));
    let mail = node.insert(in_queue("mail", 40)).await;
    let early = node.insert(in_queue("default", 10)).await;
    assert_eq!(told(&node).await.next_due, Some(at(10)), "the earliest of all queues");
    node.store.pause(&[early.into()]).await.expect("pause answers");
    assert_eq!(told(&node).await.next_due, Some(at(40)), "a paused one does not count");
    set_paused(&node, "mail", true).await;
    assert_eq!(told(&node).await.next_due, Some(at(50)), "nor one in a paused queue");
    set_paused(&node, "mail", false).await;

    let family = blocked(&node, Due::After(SECOND * 20)).await;
    assert_eq!(told(&node).await.next_due, Some(at(40)), "nor a blocked one: {:?}", family.id());
    fx.advance(SECOND * 40);
    let reply = told(&node).await;
    assert_eq!((reply.due_work, reply.next_due), (true, Some(at(50))), "one that is due is told as due work");
    worker.take(mail).await;
    assert_eq!(told(&node).await.next_due, Some(at(50)), "nor a running one");
    cancel(&node, late).await;
    assert_eq!(told(&node).await.next_due, Some(start + Fixture::LONG), "nor one that has ended");
}

pub async fn next_fire_is_the_earliest_active_schedule(fx: Fixture) {
    let node = fx.node("node").await;
    let start = fx.now();
    let at = |seconds| Some(start + SECOND * seconds);
    node.insert(job_with(|new| new.due = Due::After(SECOND))).await;
    schedule(&node, "never again", None).await;
    assert_eq!(told(&node).await.next_fire, None);

    schedule(&node, "late", at(50)).await;
    assert_eq!(told(&node).await.next_fire, at(50));
    let middle = schedule(&node, "middle", at(40)).await;
    let early = schedule(&node, "early", at(10)).await;
    assert_eq!(told(&node).await.next_fire, at(10));
    fx.advance(SECOND * 20);
    assert_eq!(told(&node).await.next_fire, at(10), "a fire that is due is still to come");
    node.store.pause(&[early.into()]).await.expect("pause answers");
    assert_eq!(told(&node).await.next_fire, at(40), "a paused schedule does not fire");
    let key = BusinessKey::new("middle").expect("a valid key");
    node.store.cancel_recurring_by_key(&key, &text("gone")).await.expect("cancel answers");
    assert_eq!(told(&node).await.next_fire, at(50), "nor does a canceled one: {middle}");
    node.store.resume(&[early.into()]).await.expect("resume answers");
    assert_eq!(told(&node).await.next_fire, at(10));
}

pub async fn the_skew_of_a_node_is_kept_and_decides_nothing(fx: Fixture) {
    let (node, reader) = (fx.node("node").await, fx.node("reader").await);
    let future = node.insert(job_with(|new| new.due = Due::After(HOUR / 2))).await;
    for (node_time, skew) in
        [(fx.now() + HOUR, 3_600_000), (fx.now() - HOUR, -3_600_000), (fx.now() + MILLI, 1), (fx.now(), 0)]
    {
        let mut signal = Beat::new(node.owner.clone(), SECOND);
        signal.node_time = node_time;
        let reply = node.store.beat(&signal).await.expect("beat answers");
        assert_eq!((reply.accepted, reply.db_now), (true, fx.now()), "a skew of {skew} ms");
        assert!(!reply.due_work);
        let row = listed(&reader, &node.owner).await.expect("it is listed");
        assert_eq!(row.skew_millis, skew);
        assert_eq!((row.heartbeat_at, row.lease_until), (fx.now(), fx.now() + SECOND));
        assert_eq!(node.claim(1).await, []);
    }
    assert_eq!(reader.status(future).await, JobStatus::Pending);
}

pub async fn an_idle_node_leaves_at_once(fx: Fixture) {
    let (node, reader) = (fx.node("node").await, fx.node("reader").await);
    let claim = node.running(job()).await;
    node.end(&claim, End::Succeeded { result: None }).await;
    assert!(node.store.leave(&node.owner).await.expect("leave answers"));
    assert_eq!(listed(&reader, &node.owner).await, None);
    for _ in 0..2 {
        assert!(!beat(&node, HOUR).await.accepted);
    }
    assert_eq!(nodes(&reader).await.len(), 1);
}

pub async fn a_node_that_holds_jobs_stays_to_be_recovered_from(fx: Fixture) {
    let (node, other) = (fx.node_with_lease("node", SECOND).await, fx.node("other").await);
    let (moved, handed) = (node.running(job()).await, node.running(job()).await);
    assert!(!node.store.leave(&node.owner).await.expect("leave answers"));
    assert!(listed(&other, &node.owner).await.is_some());
    assert_eq!(other.job(moved.id).await.picked_by, Some(node.owner.clone()));

    node.end(&handed, End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }).await;
    assert!(!node.store.leave(&node.owner).await.expect("leave answers"), "one job is one too many");
    fx.advance(SECOND);
    assert_eq!(recover(&node.owner, &other).await.len(), 1);
}

pub async fn only_nodes_that_are_long_dead_and_empty_are_purged(fx: Fixture) {
    let reader = fx.node("reader").await;
    let empty = fx.node_with_lease("empty", SECOND).await;
    let holder = fx.node_with_lease("holder", SECOND).await;
    holder.running(job()).await;
    let recent = fx.node_with_lease("recent", SECOND + MILLI).await;
    let purge = || async { reader.store.purge_nodes(HOUR).await.expect("purge answers") };

    fx.advance(SECOND + HOUR);
    assert_eq!(purge().await, 0, "not more than the retention ago");
    fx.advance(MILLI);
    assert_eq!(purge().await, 1);
    let left: BTreeSet<_> = nodes(&reader).await.into_iter().map(|node| node.info.owner).collect();
    assert!(!left.contains(&empty.owner));
    assert_eq!(left, BTreeSet::from([reader.owner.clone(), holder.owner, recent.owner]));
}

pub async fn a_dedicated_connection_lives_on_a_runtime_of_its_own(fx: Fixture) {
    let (node, other) = (fx.node_with_lease("node", SECOND).await, fx.node("other").await);
    node.running(job()).await;
    let dying = fx.node_with_lease("dying", MILLI).await;
    let lost = dying.running(job()).await;
    fx.advance(SECOND - MILLI);

    let (store, owner, dead) = (Arc::clone(&node.store), node.owner.clone(), dying.owner.clone());
    let heartbeat_thread = move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a small runtime");
        runtime.block_on(async move {
            let heart = store.dedicated().await.expect("a connection of its own");
            let reply = heart.beat(&Beat::new(owner.clone(), HOUR)).await.expect("beat answers");
            let moved = heart.recover(&[dead], &owner, 10).await.expect("recover answers");
            (reply, moved, heart.nodes().await.expect("nodes answers").len())
        })
    };
    let thread = tokio::task::spawn_blocking(|| std::thread::spawn(heartbeat_thread).join());
    let (reply, moved, count) = thread.await.expect("the wait ends").expect("the thread ends well");
    assert_eq!((reply.accepted, reply.dead, count), (true, vec![dying.owner], 3));
    assert_eq!(moved.iter().map(|claim| claim.id).collect::<Vec<_>>(), [lost.id]);

    fx.advance(SECOND);
    let row = listed(&other, &node.owner).await.expect("it is listed");
    assert!(row.is_alive(fx.now()), "the beat of the dedicated connection counts for all");
    assert_eq!(other.job(lost.id).await.picked_by, Some(node.owner));
}

pub async fn a_paused_queue_is_paused_for_every_connection(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    let id = node.insert(job()).await;
    assert!(set_paused(&node, "default", true).await);
    assert!(!set_paused(&other, "default", true).await, "it was so already");
    for peer in [&node, &other, &fx.node("later").await] {
        assert_eq!(peer.claim(1).await, []);
    }
    assert!(set_paused(&other, "default", false).await);
    assert!(!set_paused(&node, "default", false).await, "it was so already");
    assert_eq!(node.claim_one().await.id, id);
}

pub async fn a_paused_queue_takes_jobs_and_lets_running_ones_end(fx: Fixture) {
    let node = fx.node("node").await;
    let (done, retried) = (node.running(job()).await, node.running(job()).await);
    set_paused(&node, "default", true).await;
    let inserted = node.insert(job()).await;
    node.end(&done, End::Succeeded { result: None }).await;
    node.end(&retried, End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Snoozed }).await;
    assert_eq!(node.status(done.id).await, JobStatus::Succeeded);
    assert_eq!(node.claim(10).await, []);

    set_paused(&node, "default", false).await;
    let claimed: BTreeSet<_> = node.claim(10).await.iter().map(|claim| claim.id).collect();
    assert_eq!(claimed, BTreeSet::from([inserted, retried.id]));
}

pub async fn paused_queues_are_listed_by_name(fx: Fixture) {
    let (node, reader) = (fx.node("node").await, fx.connect().await);
    let paused = || async { reader.paused_queues().await.expect("paused_queues answers") };
    assert_eq!(paused().await, []);
    for name in ["mail", "Zebra", "default", "mail.bulk", "éclair", "mail bulk"] {
        set_paused(&node, name, true).await;
    }
    set_paused(&node, "default", false).await;
    set_paused(&node, "never paused", false).await;
    let expected = ["Zebra", "mail", "mail bulk", "mail.bulk", "éclair"].map(queue);
    assert_eq!(paused().await, expected, "by their bytes");
}
