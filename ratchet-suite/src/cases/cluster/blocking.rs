//! Bodies that block a thread: they cannot be stopped, so their jobs and permits go to nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::{JobStatus, ParkedOn};
use ratchet_core::jobs;
use tokio::sync::watch;

use super::{now, short_lease};
use crate::{Fixture, Node};

crate::cases! {
    a_permit_is_held_until_a_body_that_blocks_returns;
    a_body_that_blocks_is_given_to_nobody_else_before_the_lease_is_over;
    what_a_body_that_blocks_returns_after_it_was_given_up_counts;
}

/// The log message about a body that goes on after its deadline.
const GOES_ON: &str = "the body blocks its thread and goes on; nobody else gets its job or permit meanwhile";

/// A service whose bodies ignore every signal until the gate opens.
#[derive(Clone)]
struct Deaf {
    inside: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    begun: Arc<watch::Sender<u32>>,
    open: Arc<watch::Sender<bool>>,
}

impl Deaf {
    fn new() -> Self {
        let (begun, open) = (watch::Sender::new(0), watch::Sender::new(false));
        Self { inside: Arc::default(), most: Arc::default(), begun: Arc::new(begun), open: Arc::new(open) }
    }

    fn wait(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.begun.send_modify(|begun| *begun += 1);
        while !*self.open.borrow() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    async fn until_begun(&self, times: u32) {
        self.begun.subscribe().wait_for(|begun| *begun >= times).await.expect("the sender is here");
    }
}

#[jobs(target = "test.Deaf")]
impl Deaf {
    #[job(blocking, resource = "oven", timeout = "20ms", max_retries = 0)]
    fn bake(&self) {
        self.wait();
    }

    #[job(blocking, resource = "oven")]
    fn roast(&self) {
        self.wait();
    }

    #[job(blocking)]
    fn block(&self) {
        self.wait();
    }
}

async fn node(fx: &Fixture, deaf: &Deaf) -> Node {
    let hasty = |options: &mut RatchetOptions| {
        short_lease(options);
        options.timeout.cancel_grace = Duration::from_millis(20);
    };
    fx.node(|builder| builder.register(deaf.clone()).resource("oven", 1).configure(hasty)).await
}

async fn a_permit_is_held_until_a_body_that_blocks_returns(fx: Fixture) {
    let deaf = Deaf::new();
    let (here, there) = (node(&fx, &deaf).await, node(&fx, &deaf).await);
    let late = here.enqueue(Deaf::job().bake()).submit().await.expect("stored");
    deaf.until_begun(1).await;
    let next = there.enqueue(Deaf::job().roast()).submit().await.expect("stored");
    there.until(next.id(), |job| matches!(job.parked_on, Some(ParkedOn::Resource(_)))).await;
    here.until_said(late.id(), GOES_ON).await;
    assert_eq!(now(&late).await.status, JobStatus::Running, "its time is up, but its body is not out");
    assert_eq!(*deaf.begun.borrow(), 1);
    deaf.open.send_replace(true);
    let late = late.ended().await.expect("it ends");
    assert_eq!((late.status, late.attempts), (JobStatus::Failed, 1), "what it returned came too late");
    next.result().await.expect("it runs");

    // A canceled body keeps its permit as well.
    deaf.open.send_replace(false);
    let called_off = here.enqueue(Deaf::job().roast()).submit().await.expect("stored");
    deaf.until_begun(3).await;
    there.client().cancel(called_off.id(), "burnt").await.expect("asked for");
    let next = there.enqueue(Deaf::job().roast()).submit().await.expect("stored");
    here.until_said(called_off.id(), GOES_ON).await;
    deaf.open.send_replace(true);
    assert_eq!(called_off.ended().await.expect("it ends").status, JobStatus::Canceled);
    next.result().await.expect("it runs");
    assert_eq!(deaf.most.load(Ordering::SeqCst), 1, "two were in an oven for one");
    here.stop().await;
    there.stop().await;
}

// shows: S62
async fn a_body_that_blocks_is_given_to_nobody_else_before_the_lease_is_over(fx: Fixture) {
    let (deaf, other) = (Deaf::new(), Deaf::new());
    other.open.send_replace(true);
    let stops = node(&fx, &deaf).await;
    let job = stops.enqueue(Deaf::job().block()).submit().await.expect("stored");
    deaf.until_begun(1).await;
    stops.stop_now().await;
    let left = now(&job).await;
    assert_eq!((left.status, left.picked_by), (JobStatus::Running, Some(stops.owner())), "its body goes on");
    let stays = node(&fx, &other).await;
    other.until_begun(1).await;
    let ended = stays.until(job.id(), |job| job.status.is_terminal()).await;
    assert_eq!((ended.status, ended.attempts), (JobStatus::Succeeded, 0));
    assert_eq!(ended.crash_count, 0, "a node that stops is nobody's victim");
    deaf.open.send_replace(true);
    stays.stop().await;
}

async fn what_a_body_that_blocks_returns_after_it_was_given_up_counts(fx: Fixture) {
    let deaf = Deaf::new();
    let node = Arc::new(node(&fx, &deaf).await);
    let job = node.enqueue(Deaf::job().block()).submit().await.expect("stored");
    deaf.until_begun(1).await;
    let stopping = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.stop_now().await }
    });
    node.until_said(job.id(), GOES_ON).await;
    deaf.open.send_replace(true);
    stopping.await.expect("it stops");
    assert_eq!(now(&job).await.status, JobStatus::Succeeded, "its work is done");
}
