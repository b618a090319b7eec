//! Random sequences of user and node actions, on the real engine beside a small model of the life of a job.
//!
//! A [`Step`](step::Step) happens in both, and then everything that a reader can see is compared. Only the sequence is
//! random: the clock stands still until a step moves it, a node runs one job after the other, and steps during a body
//! are taken by the body itself. So a failing sequence fails every time, and is made as short as possible before it is
//! reported.

mod life;
mod step;
mod world;

use std::sync::Arc;

use futures::future::join_all;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use ratchet_api::{ManualClock, StoreClock};
use tokio::runtime::Handle;

use crate::test_store::TestStore;
use crate::{Fixture, MakePlace};
use world::World;

/// The variable that asks for many more sequences, different in each run: `cargo xtask test --long` sets it.
const LONG: &str = "RATCHET_LONG";
/// The variable with the seed of a run, to repeat its sequences.
const SEED: &str = "RATCHET_MODEL_SEED";
/// The variable with the number of sequences to run.
const SEQUENCES: &str = "RATCHET_MODEL_SEQUENCES";

/// The number of threads that share the sequences.
const LANES: u32 = 2;
/// The number of sequences that share a store. A new store is slow to make on a server; a full memory store is slow.
const PER_STORE: u32 = 20;

/// The sequences to run.
struct Plan {
    seed: u64,
    sequences: u32,
}

impl Plan {
    fn of(store: &str) -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let long = std::env::var_os(LONG).is_some();
        let usual = match (store, long) {
            ("memory", false) => 2_000,
            ("memory", true) => 50_000,
            (_, false) => 200,
            (_, true) => 5_000,
        };
        let sequences = number(SEQUENCES).and_then(|number| u32::try_from(number).ok()).unwrap_or(usual);
        // The same sequences every time by default, so that a failure points at the latest change.
        let seed = number(SEED).unwrap_or_else(|| if long { rand::random::<u32>().into() } else { 0 });
        Self { seed, sequences }
    }
}

/// Runs the planned number of sequences on the store of this case.
///
/// # Panics
/// With the shortest sequence that fails, and the difference that it leads to.
pub(crate) async fn check(fx: &Fixture) {
    let plan = Plan::of(fx.store().await.name());
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            let (make, seed) = (fx.make(), plan.seed + u64::from(lane));
            let sequences = (plan.sequences + lane) / LANES;
            tokio::task::spawn_blocking(move || run_lane(make, seed, sequences, &Handle::current()))
        })
        .collect();
    // Waits for all lanes: if the runtime is dropped under a running lane, that lane never ends.
    let failures = join_all(lanes).await.into_iter().filter_map(|lane| lane.expect("no panic").err());
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn run_lane(make: MakePlace, seed: u64, sequences: u32, runtime: &Handle) -> Result<(), String> {
    let config = Config { cases: sequences, failure_persistence: None, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let arena = std::cell::RefCell::new(Arena { make, place: None, used: 0 });
    let ended = TestRunner::new_with_rng(config, rng).run(&step::sequence(), |steps| {
        runtime.block_on(arena.borrow_mut().run(&steps)).map_err(TestCaseError::fail)
    });
    runtime.block_on(arena.into_inner().clear());
    ended.map_err(|error| match error {
        TestError::Fail(reason, steps) => {
            let steps: String = (1..).zip(&steps).map(|(n, step)| format!("  {n}. {step:?}\n")).collect();
            format!("{reason}\nof these steps:\n{steps}{SEED}={seed} runs them again")
        }
        TestError::Abort(reason) => format!("the sequences broke off: {reason}"),
    })
}

/// The store that sequences run on; it is replaced from time to time.
struct Arena {
    make: MakePlace,
    place: Option<Box<dyn TestStore>>,
    used: u32,
}

impl Arena {
    async fn run(&mut self, steps: &[step::Step]) -> Result<(), String> {
        if self.used.is_multiple_of(PER_STORE) {
            self.clear().await;
        }
        let place = match &mut self.place {
            Some(place) => place,
            none => none.insert((self.make)().await),
        };
        self.used += 1;
        let clock = ManualClock::default();
        let store = place.connect_at(StoreClock::Manual(clock.clone())).await;
        let world = World::new(Arc::clone(&store), clock, format!("model-{}", self.used)).await;
        let ended = world.live_through(steps).await;
        world.remove().await;
        ended
    }

    async fn clear(&mut self) {
        if let Some(place) = self.place.take() {
            place.remove().await;
        }
    }
}
