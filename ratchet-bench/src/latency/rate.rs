//! Submissions at a rate from another process: from the commit there to the first line of the body here, beside the
//! same by hand; and from a cancel there to the body here.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ratchet_api::{JobId, StoreClock};
use ratchet_core::{Call, InvalidName, JobContext, JobFailure, Method, Ratchet, Scheduler};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::peer::{Peer, now};
use super::{Figure, WakeReceiver};
use crate::job::{Invoice, METHOD, TARGET};
use crate::store::{Bench, TestDatabase};

/// The method whose body runs until it is canceled.
const WAIT: &str = "wait";

/// The sizes of the measurement. Engine and probe take turns, so that other load on the machine affects them equally.
pub(super) struct Sizes {
    pub(super) rounds: usize,
    /// Jobs in a round, on each side.
    pub(super) jobs: usize,
    pub(super) cancels: usize,
}

/// An event of a job in this process, with its time.
type Event = (JobId, Duration);

pub(super) struct Figures {
    pub(super) engine: Figure,
    pub(super) probe: Figure,
    pub(super) cancel: Figure,
}

pub(super) async fn run(
    bench: &dyn Bench,
    place: &dyn TestDatabase,
    rate: f64,
    sizes: &Sizes,
) -> Result<Figures> {
    let mut probe = place.wake_receiver().await?.context("there is no probe for this store")?;
    let mut peer = Peer::start(bench, place)?;
    let (begun, mut starts) = unbounded_channel();
    let (told, mut stops) = unbounded_channel();
    let node = start(place, &begun, &told).await?;
    let (mut engine, mut by_hand) = (Vec::new(), Vec::new());
    // The first round warms up: plans, caches, connections.
    for round in 0..=sizes.rounds {
        let jobs = if round == 0 { sizes.jobs.min(20) } else { sizes.jobs };
        let submitted = peer.does(&format!("submit {jobs} {rate}")).await?;
        let ran = events(&mut starts, jobs).await?;
        let insert = format!("insert {jobs} {rate}");
        let (inserted, claimed) = tokio::try_join!(peer.does(&insert), claims(probe.as_mut(), jobs))?;
        if round > 0 {
            engine.extend(between(&submitted, &ran)?);
            by_hand.extend(between(&inserted, &claimed)?);
        }
    }
    let mut cancels = Vec::new();
    for _ in 0..=sizes.cancels {
        let job = node.enqueue(Call::<()>::new(TARGET, WAIT)).submit().await?;
        events(&mut starts, 1).await?;
        let asked = peer.does(&format!("cancel {}", job.id())).await?;
        let stopped = events(&mut stops, 1).await?;
        cancels.extend(between(&asked, &stopped)?);
    }
    peer.end().await?;
    node.stop().await;
    Ok(Figures {
        engine: Figure::of("other process", &engine),
        probe: Figure::of("probe", &by_hand),
        cancel: Figure::of("remote cancel", &cancels[1..]),
    })
}

async fn claims(probe: &mut dyn WakeReceiver, jobs: usize) -> Result<Vec<Event>> {
    let mut claimed = Vec::new();
    while claimed.len() < jobs {
        let ids = probe.claimed().await?;
        let at = now();
        claimed.extend(ids.into_iter().map(|id| (id, at)));
    }
    Ok(claimed)
}

async fn events(happened: &mut UnboundedReceiver<Event>, count: usize) -> Result<Vec<Event>> {
    let mut events = Vec::with_capacity(count);
    while events.len() < count {
        events.push(happened.recv().await.context("nobody runs jobs any more")?);
    }
    Ok(events)
}

/// The time between the two events of each job.
fn between(there: &[Event], here: &[Event]) -> Result<Vec<Duration>> {
    let here: HashMap<JobId, Duration> = here.iter().copied().collect();
    let took = |(job, there): &Event| {
        let here = here.get(job).with_context(|| format!("job {job} is lost"))?;
        Ok(here.saturating_sub(*there))
    };
    there.iter().map(took).collect()
}

/// A node with every default.
async fn start(
    place: &dyn TestDatabase,
    begun: &UnboundedSender<Event>,
    told: &UnboundedSender<Event>,
) -> Result<Scheduler> {
    let store = place.connect(StoreClock::Server, 2).await?;
    let node = Ratchet::builder_shared(store)
        .method(send(begun.clone())?)
        .method(wait(begun.clone(), told.clone())?);
    Ok(node.allow(["billing."]).start().await?)
}

fn note(events: &UnboundedSender<Event>, ctx: &JobContext) {
    // The measurement may be over.
    let _ = events.send((ctx.job_id(), now()));
}

fn send(begun: UnboundedSender<Event>) -> Result<Method, InvalidName> {
    Method::function(TARGET, METHOD, move |ctx: JobContext, (_,): (Invoice,)| {
        note(&begun, &ctx);
        async { Ok::<(), JobFailure>(()) }
    })
}

fn wait(begun: UnboundedSender<Event>, told: UnboundedSender<Event>) -> Result<Method, InvalidName> {
    Method::function(TARGET, WAIT, move |ctx: JobContext, (): ()| {
        note(&begun, &ctx);
        let told = told.clone();
        async move {
            ctx.canceled().await;
            note(&told, &ctx);
            Ok::<(), JobFailure>(())
        }
    })
}
