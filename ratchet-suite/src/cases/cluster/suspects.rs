//! Suspects: how jobs that may have killed a node run again, and which of them is blamed in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::{
    End, HandBackReason, Job, JobFailure, JobId, JobStatus, NodeInfo, Outcome, Owner, ParkedOn, QueueName,
    Verdict,
};
use ratchet_core::{Call, jobs};
use tokio::sync::watch;

use super::{Worker, node_with, short_lease};
use crate::Fixture;
use crate::Node;
use crate::cable::{self, Line};
use crate::lines;

crate::cases! {
    those_who_crashed_once_run_on_a_quarter_of_the_slots;
    who_crashed_twice_runs_with_no_other_suspect;
    nothing_is_claimed_beside_who_runs_alone;
    who_is_at_the_limit_runs_alone_even_on_a_busy_node;
    only_who_died_alone_is_to_blame;
    who_died_in_company_is_not_blamed_however_often;
    a_suspect_that_is_given_back_waits_apart_again;
    a_suspect_that_lacks_a_permit_waits_apart_until_it_gets_one;
    a_suspect_that_ends_by_itself_is_a_suspect_no_more;
    a_suspect_of_another_service_is_left_to_it;
}

const CRASH_LIMIT: u32 = 3;

/// A service that counts the bodies that run at the same time, until the gate opens.
#[derive(Clone)]
struct Watched(Arc<Inner>);

struct Inner {
    gate: watch::Sender<bool>,
    all: AtomicUsize,
    suspects: AtomicUsize,
    /// The most suspects at once, and the most jobs beside one.
    most_suspects: AtomicUsize,
    most_beside: AtomicUsize,
}

impl Watched {
    fn new() -> Self {
        let (gate, _) = watch::channel(false);
        Self(Arc::new(Inner {
            gate,
            all: AtomicUsize::new(0),
            suspects: AtomicUsize::new(0),
            most_suspects: AtomicUsize::new(0),
            most_beside: AtomicUsize::new(0),
        }))
    }

    fn open(&self) {
        self.0.gate.send_replace(true);
    }

    async fn opened(&self) -> Result<(), JobFailure> {
        let opened = self.0.gate.subscribe().wait_for(|open| *open).await.map(drop);
        opened.map_err(|_| JobFailure::new("Gone", "no gate"))
    }

    /// Returns how many bodies run: suspects, and all.
    fn running(&self) -> (usize, usize) {
        (self.0.suspects.load(Ordering::SeqCst), self.0.all.load(Ordering::SeqCst))
    }

    async fn until_running(&self, wanted: (usize, usize)) {
        while self.running() != wanted {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn most(&self) -> (usize, usize) {
        (self.0.most_suspects.load(Ordering::SeqCst), self.0.most_beside.load(Ordering::SeqCst))
    }
}

#[jobs(target = "test.Watched")]
impl Watched {
    #[job]
    async fn ordinary(&self) -> Result<(), JobFailure> {
        self.0.all.fetch_add(1, Ordering::SeqCst);
        self.opened().await?;
        self.0.all.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    #[job]
    async fn suspect(&self) -> Result<(), JobFailure> {
        let beside = self.0.all.fetch_add(1, Ordering::SeqCst);
        let suspects = self.0.suspects.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most_suspects.fetch_max(suspects, Ordering::SeqCst);
        self.0.most_beside.fetch_max(beside, Ordering::SeqCst);
        self.opened().await?;
        self.0.suspects.fetch_sub(1, Ordering::SeqCst);
        self.0.all.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    #[job(resource = "door")]
    async fn through_the_door(&self) -> Result<(), JobFailure> {
        Ok(())
    }

    #[job(max_retries = 1, backoff = "fixed 1h")]
    async fn fail(&self) -> Result<(), JobFailure> {
        Err(JobFailure::new("Failed", "by itself"))
    }

    #[job]
    async fn snooze(&self) -> Result<(), JobFailure> {
        Err(JobFailure::snooze(Duration::from_secs(3_600)))
    }
}

/// Returns the full name of a method of `test.Watched`.
fn method(name: &str) -> String {
    format!("test.Watched.{name}")
}

/// Stores jobs and records `crashes` crashes for each.
async fn crashed<R, const N: usize>(fx: &Fixture, calls: [(Call<R>, &str); N], crashes: u32) -> [JobId; N] {
    let (store, client, queue) = (fx.store().await, fx.client().await, QueueName::default());
    let owner = Owner::incarnate("dead");
    store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(3_600)).await.expect("joined");
    // A paused queue keeps other nodes from claiming them meanwhile.
    store.set_queue_paused(&queue, true).await.expect("paused");
    let mut jobs = Vec::new();
    for (call, name) in calls {
        let job = client.enqueue(call).submit().await.expect("stored").id();
        for crashes in 1..=crashes {
            let claim = store.pick_up(&owner, &[job]).await.expect("answered").remove(0);
            let end = End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Crashed };
            let mut outcome = Outcome::new(job, claim.fence, end);
            outcome.suspect = Some(ParkedOn::Suspect { crashes, method: method(name) });
            let verdicts = store.commit(&owner, &[outcome]).await.expect("answered");
            assert!(matches!(verdicts[..], [Verdict::Recorded(_)]), "{verdicts:?}");
        }
        jobs.push(job);
    }
    store.set_queue_paused(&queue, false).await.expect("it goes on");
    jobs.try_into().expect("as many")
}

/// Makes `N` calls of the suspect.
fn suspects<const N: usize>() -> [(Call<()>, &'static str); N] {
    std::array::from_fn(|_| (Watched::job().suspect(), "suspect"))
}

/// Starts a node with `slots` slots and a short beat interval.
async fn watching(fx: &Fixture, watched: &Watched, slots: u32) -> Node {
    watching_on(fx, watched, slots, &Arc::default()).await
}

/// Starts such a node at the end of a cable.
async fn watching_on(fx: &Fixture, watched: &Watched, slots: u32, line: &Arc<Line>) -> Node {
    let set_up = |options: &mut RatchetOptions| {
        short_lease(options);
        // No node dies here, and a busy machine is slow.
        options.node.lease = Duration::from_secs(60);
        options.node.crash_limit = CRASH_LIMIT;
        options.execution.queue("default").slots = slots;
    };
    let store = cable::lay(fx.store().await, line);
    fx.node_on(store, |builder| builder.register(watched.clone()).configure(set_up)).await
}

async fn ordinary(node: &Node, count: usize) {
    node.client().enqueue_many((0..count).map(|_| Watched::job().ordinary())).await.expect("stored");
}

async fn all_succeed(node: &Node, jobs: &[JobId]) {
    for job in jobs {
        let ended = node.until(*job, |job| job.status.is_terminal()).await;
        assert_eq!(ended.status, JobStatus::Succeeded, "{ended:?}");
    }
}

// shows: S136
async fn those_who_crashed_once_run_on_a_quarter_of_the_slots(fx: Fixture) {
    let watched = Watched::new();
    let jobs = crashed(&fx, suspects::<5>(), 1).await;
    let node = watching(&fx, &watched, 8).await;
    watched.until_running((2, 2)).await;
    ordinary(&node, 20).await;
    watched.until_running((2, 8)).await;
    watched.open();
    all_succeed(&node, &jobs).await;
    assert_eq!(watched.most().0, 2);
    node.stop().await;
}

// shows: S136
async fn who_crashed_twice_runs_with_no_other_suspect(fx: Fixture) {
    let watched = Watched::new();
    let once = crashed(&fx, suspects::<3>(), 1).await;
    let twice = crashed(&fx, suspects::<3>(), 2).await;
    let node = watching(&fx, &watched, 40).await;
    ordinary(&node, 2).await;
    watched.until_running((1, 3)).await;
    let first = node.until(twice[0], |job| job.status == JobStatus::Running).await;
    assert_eq!(first.crash_count, 2, "the most dangerous first");
    watched.open();
    all_succeed(&node, &twice).await;
    all_succeed(&node, &once).await;
    node.stop().await;
}

// shows: S136
async fn nothing_is_claimed_beside_who_runs_alone(fx: Fixture) {
    let (watched, line) = (Watched::new(), Arc::<Line>::default());
    let jobs = crashed(&fx, suspects::<1>(), CRASH_LIMIT).await;
    let node = watching_on(&fx, &watched, 8, &line).await;
    watched.until_running((1, 1)).await;
    ordinary(&node, 3).await;
    line.more_beats(5).await;
    assert_eq!(watched.running(), (1, 1));
    watched.open();
    all_succeed(&node, &jobs).await;
    node.stop().await;
}

// shows: S136
async fn who_is_at_the_limit_runs_alone_even_on_a_busy_node(fx: Fixture) {
    let watched = Watched::new();
    let node = watching(&fx, &watched, 8).await;
    ordinary(&node, 3).await;
    watched.until_running((0, 3)).await;
    let jobs = crashed(&fx, suspects::<2>(), CRASH_LIMIT).await;
    // A node that asks for the lock holds it for a moment, and a node that asks just then waits for ten leases.
    let pauses = |line: &lines::Line| line.message().starts_with("claims pause");
    while !lines::of_node(&node.owner()).iter().any(pauses) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The node now lets its jobs end, and starts no others.
    ordinary(&node, 4).await;
    assert_eq!(watched.running(), (0, 3));
    watched.open();
    all_succeed(&node, &jobs).await;
    assert_eq!(watched.most(), (1, 0), "the most suspects at once, and the most jobs beside one");
    node.stop().await;
}

// shows: S136
async fn only_who_died_alone_is_to_blame(fx: Fixture) {
    let lines: [Arc<Line>; 3] = std::array::from_fn(|_| Arc::default());
    let start = async |number: usize, worker: &Worker| {
        let limit = |options: &mut RatchetOptions| options.node.crash_limit = 1;
        node_with(&fx, ["first", "second", "third"][number], worker, &lines[number], limit).await
    };
    let (first, second, third) = (Worker::waiting(), Worker::waiting(), Worker::quick());
    let a = start(0, &first).await;
    let jobs = a.client().enqueue_many((0..4).map(|_| Worker::job().work())).await.expect("stored");
    let jobs: Vec<_> = jobs.into_iter().map(|job| job.expect("stored").id()).collect();
    while first.runs() < 4 {
        first.entered.notified().await;
    }
    let b = start(1, &second).await;
    lines[0].cut(true);
    second.entered.notified().await;
    let running = running_of(&b, &jobs).await;
    let [guilty] = running[..] else { panic!("one runs alone, not {running:?}") };
    let other = b.enqueue(Worker::job().work()).submit().await.expect("stored").id();
    lines[1].more_beats(5).await;
    assert_eq!(second.runs(), 1, "nothing runs beside it");
    let c = start(2, &third).await;
    lines[1].cut(true);
    for job in &jobs {
        let ended = c.until(*job, |job| job.status.is_terminal()).await;
        let (expected, crashes) =
            if *job == guilty { (JobStatus::Failed, 2) } else { (JobStatus::Succeeded, 1) };
        assert_eq!((ended.status, ended.crash_count), (expected, crashes), "{ended:?}");
    }
    all_succeed(&c, &[other]).await;
    c.stop().await;
    drop((a, b));
}

// shows: S136
async fn who_died_in_company_is_not_blamed_however_often(fx: Fixture) {
    let (first, second) = (Worker::waiting(), Worker::quick());
    let lines: [Arc<Line>; 2] = std::array::from_fn(|_| Arc::default());
    let [often] = crashed(&fx, [(Worker::job().work(), "work")], 5).await;
    acquit(&fx, often).await;
    let limit = |options: &mut RatchetOptions| options.node.crash_limit = 1;
    let dead = node_with(&fx, "dead", &first, &lines[0], limit).await;
    let other = dead.enqueue(Worker::job().work()).submit().await.expect("stored").id();
    while first.runs() < 2 {
        first.entered.notified().await;
    }
    let alive = node_with(&fx, "alive", &second, &lines[1], limit).await;
    lines[0].cut(true);
    all_succeed(&alive, &[often, other]).await;
    assert_eq!(alive.until(often, |_| true).await.crash_count, 6);
    alive.stop().await;
    drop(dead);
}

/// Makes a body of this suspect fail, after which the job is no suspect any more.
async fn acquit(fx: &Fixture, job: JobId) {
    let (store, owner) = (fx.store().await, Owner::incarnate("fair"));
    store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(3_600)).await.expect("joined");
    let claim = store.pick_up(&owner, &[job]).await.expect("answered").remove(0);
    let end = End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Snoozed };
    store.commit(&owner, &[Outcome::new(job, claim.fence, end)]).await.expect("answered");
}

async fn running_of(node: &Node, jobs: &[JobId]) -> Vec<JobId> {
    let mut running = Vec::new();
    for job in jobs {
        let job: Job = node.until(*job, |_| true).await;
        running.extend((job.status == JobStatus::Running).then_some(job.spec.id));
    }
    running
}

async fn a_suspect_that_is_given_back_waits_apart_again(fx: Fixture) {
    let watched = Watched::new();
    let [job] = crashed(&fx, suspects::<1>(), 2).await;
    let node = watching(&fx, &watched, 8).await;
    watched.until_running((1, 1)).await;
    let store = fx.store().await;
    node.stop_now().await;
    let job = store.find(&[job]).await.expect("read").remove(0).expect("there");
    assert_eq!(job.status, JobStatus::Pending);
    assert_eq!(job.parked_on, Some(ParkedOn::Suspect { crashes: 2, method: method("suspect") }));
    assert_eq!((job.crash_count, job.attempts), (2, 0), "nobody died");
}

async fn a_suspect_that_lacks_a_permit_waits_apart_until_it_gets_one(fx: Fixture) {
    let watched = Watched::new();
    let store = fx.store().await;
    let door = ratchet_api::ResourceName::new("door").expect("a name");
    let limit = |most| {
        let mut limit = ratchet_api::ResourceLimit::new(door.clone(), most);
        limit.retry_delay = Duration::from_millis(20);
        limit
    };
    store.configure_resource(&limit(0)).await.expect("configured");
    let call = Watched::job().through_the_door();
    let [job] = crashed(&fx, [(call, "through_the_door")], 1).await;
    let node = watching(&fx, &watched, 8).await;
    let waits = Some(ParkedOn::Suspect { crashes: 1, method: method("through_the_door") });
    let begun = node.until(job, |_| true).await.fence;
    // The job was tried, and waits as before.
    node.until(job, |job| job.fence > begun && job.parked_on == waits).await;
    store.configure_resource(&limit(1)).await.expect("configured");
    all_succeed(&node, &[job]).await;
    node.stop().await;
}

async fn a_suspect_that_ends_by_itself_is_a_suspect_no_more(fx: Fixture) {
    let watched = Watched::new();
    let [failed, snoozed] =
        crashed(&fx, [(Watched::job().fail(), "fail"), (Watched::job().snooze(), "snooze")], 2).await;
    let node = watching(&fx, &watched, 8).await;
    for job in [failed, snoozed] {
        let ended = node.until(job, |job| job.status == JobStatus::Pending && job.parked_on.is_none()).await;
        assert_eq!(ended.crash_count, 2, "what happened is not forgotten");
    }
    node.stop().await;
}

async fn a_suspect_of_another_service_is_left_to_it(fx: Fixture) {
    let (watched, line) = (Watched::new(), Arc::<Line>::default());
    let jobs = crashed(&fx, suspects::<2>(), 2).await;
    let stranger = node_with(&fx, "stranger", &Worker::quick(), &line, |_| {}).await;
    let before = stranger.until(jobs[0], |_| true).await.fence;
    line.more_beats(5).await;
    assert_eq!(stranger.until(jobs[0], |_| true).await.fence, before, "it is never taken in vain");
    watched.open();
    let node = watching(&fx, &watched, 8).await;
    all_succeed(&node, &jobs).await;
    node.stop().await;
    stranger.stop().await;
}
