use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::thread;

use tracing::span;

use super::*;

const START: u64 = 1_700_000_000_000;
const TEN_MINUTES: u64 = 10 * 60 * 1_000;

/// Clocks that move only when a test moves them, or by `step` per monotonic reading.
#[derive(Debug)]
struct TestClock {
    wall: AtomicU64,
    monotonic_micros: AtomicU64,
    step_micros: u64,
    wall_reads: AtomicUsize,
}

impl TestClock {
    fn frozen() -> Self {
        Self::stepping(Duration::ZERO)
    }

    fn stepping(step: Duration) -> Self {
        Self {
            wall: AtomicU64::new(START),
            monotonic_micros: AtomicU64::new(0),
            step_micros: u64::try_from(step.as_micros()).unwrap(),
            wall_reads: AtomicUsize::new(0),
        }
    }

    fn set_wall(&self, millis: u64) {
        self.wall.store(millis, Ordering::SeqCst);
    }

    fn pass(&self, millis: u64) {
        self.monotonic_micros.fetch_add(millis * 1_000, Ordering::SeqCst);
    }
}

impl WallClock for TestClock {
    fn unix_millis(&self) -> u64 {
        self.wall_reads.fetch_add(1, Ordering::SeqCst);
        self.wall.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_micros.fetch_add(self.step_micros, Ordering::SeqCst))
    }
}

/// Counts warnings; everything else is ignored.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Warnings {
    /// A counter that receives every warning of this thread.
    ///
    /// With only one subscriber, tracing disables a warning for everyone if another test's thread reaches it first: it
    /// asks that thread's subscriber, which does not exist. A second subscriber that stays registered makes it ask
    /// both.
    fn counted() -> Self {
        static SECOND: OnceLock<tracing::Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| tracing::Dispatch::new(Self::default()));
        Self::default()
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn counter_of(id: Uuid) -> u64 {
    id.as_u64_pair().0 & COUNTER_MASK
}

fn random_of(id: Uuid) -> u64 {
    id.as_u64_pair().1 & RANDOM_MASK
}

fn assert_strictly_increasing(ids: &[Uuid]) {
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
}

// shows: S161
#[test]
fn version_and_variant_bits_are_where_the_rfc_puts_them() {
    let all_ones = assemble((MILLIS_MASK << COUNTER_BITS) | COUNTER_MASK, u64::MAX);
    assert_eq!(all_ones.as_u128(), 0xffff_ffff_ffff_7fff_bfff_ffff_ffff_ffff);

    let all_zeros = assemble(0, 0);
    assert_eq!(all_zeros.as_u128(), 0x0000_0000_0000_7000_8000_0000_0000_0000);

    let id = UuidV7Generator::new().generate();
    assert_eq!(id.get_version_num(), 7);
    assert_eq!(id.get_variant(), Variant::RFC4122);
}

// shows: S161
#[test]
fn the_example_of_the_rfc_is_reproduced() {
    let example = assemble((1_645_557_742_000 << COUNTER_BITS) | 0xcc3, 0x18c4_dc0c_0c07_398f);
    assert_eq!(example.to_string(), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
}

// shows: S162
#[test]
fn the_counter_starts_at_zero_in_every_millisecond() {
    let generator = UuidV7Generator::with_clock(TestClock::frozen());
    let counters = |n: usize| (0..n).map(|_| counter_of(generator.generate())).collect::<Vec<_>>();

    assert_eq!(counters(3), [0, 1, 2]);
    generator.clock.set_wall(START + 1);
    assert_eq!(counters(2), [0, 1]);
}

// shows: S162
#[test]
fn ids_of_one_generator_strictly_increase() {
    let generator = UuidV7Generator::new();
    let ids: Vec<_> = (0..200_000).map(|_| generator.generate()).collect();
    assert_strictly_increasing(&ids);
}

// shows: S162
#[test]
fn threads_sharing_a_generator_never_get_the_same_counter() {
    let generator = UuidV7Generator::new();
    let per_thread: Vec<Vec<Uuid>> = thread::scope(|scope| {
        let make = || (0..50_000).map(|_| generator.generate()).collect();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });

    per_thread.iter().for_each(|ids| assert_strictly_increasing(ids));
    // Without the random half: uniqueness must not rest on luck.
    let ticks: HashSet<u64> = per_thread.iter().flatten().map(|id| id.as_u64_pair().0).collect();
    assert_eq!(ticks.len(), 200_000);
}

// shows: S163
#[test]
fn a_full_millisecond_is_waited_out_and_the_timestamp_stays_at_wall_time() {
    /// Shows a later millisecond once the full one has been read a few times.
    struct Advancing(AtomicU64);
    impl WallClock for Advancing {
        fn unix_millis(&self) -> u64 {
            START + self.0.fetch_add(1, Ordering::SeqCst) / 5_000 * 10
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    let generator = UuidV7Generator::with_clock(Advancing(AtomicU64::new(0)));
    let ids: Vec<_> = (0..4_097).map(|_| generator.generate()).collect();

    assert_strictly_increasing(&ids);
    assert_eq!((timestamp_of(ids[4_095]), counter_of(ids[4_095])), (Some(START), 4_095));
    assert_eq!((timestamp_of(ids[4_096]), counter_of(ids[4_096])), (Some(START + 10), 0), "not a guess");
}

// shows: S163
#[test]
fn a_clock_that_stands_still_is_given_two_milliseconds() {
    let warnings = Warnings::counted();
    let generator = UuidV7Generator::with_clock(TestClock::stepping(Duration::from_micros(100)));
    let full: Vec<_> = (0..4_096).map(|_| generator.generate()).collect();
    assert_eq!(full.last().map(|id| counter_of(*id)), Some(COUNTER_MASK));
    let reads_before = generator.clock.wall_reads.load(Ordering::SeqCst);

    let id = tracing::subscriber::with_default(warnings.clone(), || generator.generate());

    let reads = generator.clock.wall_reads.load(Ordering::SeqCst) - reads_before;
    assert!((2..=25).contains(&reads), "2 ms are about 20 readings of 100 µs, not {reads}");
    // 2 ms of spinning and the odd reading before it, counted from the last good wall time.
    assert_eq!((timestamp_of(id), counter_of(id)), (Some(START + 2), 0));
    assert_eq!(warnings.0.load(Ordering::SeqCst), 1);
}

// shows: S163
#[test]
fn two_frozen_clocks_cannot_hold_the_caller_for_ever() {
    let generator = UuidV7Generator::with_clock(TestClock::frozen());
    let ids: Vec<_> = (0..3 * 4_096).map(|_| generator.generate()).collect();

    assert_strictly_increasing(&ids);
    assert_eq!(timestamp_of(ids[3 * 4_096 - 1]), Some(START + 2));
    // Only the first overflow spins; from then on the wall clock is known to lag.
    let reads = generator.clock.wall_reads.load(Ordering::SeqCst);
    assert!(reads <= SPIN_READS as usize + 3 * 4_096 + 2, "{reads} readings");
}

// shows: S162 S163
#[test]
fn a_step_back_continues_from_the_monotonic_anchor() {
    let warnings = Warnings::counted();
    let generator = UuidV7Generator::with_clock(TestClock::frozen());
    let clock = &generator.clock;
    let before = generator.generate();

    tracing::subscriber::with_default(warnings.clone(), || {
        clock.set_wall(START - TEN_MINUTES);
        clock.pass(250);
        let during = [generator.generate(), generator.generate()];
        assert_strictly_increasing(&[before, during[0], during[1]]);
        assert_eq!(during.map(timestamp_of), [Some(START + 250); 2]);
        assert_eq!(during.map(counter_of), [0, 1]);
        assert_eq!(warnings.0.load(Ordering::SeqCst), 1, "one warning per step, not per id");

        clock.set_wall(START + TEN_MINUTES);
        clock.pass(TEN_MINUTES);
        assert_eq!(timestamp_of(generator.generate()), Some(START + TEN_MINUTES));
        assert_eq!(warnings.0.load(Ordering::SeqCst), 1, "a step forward is not worth a warning");

        clock.set_wall(START);
        assert_eq!(timestamp_of(generator.generate()), Some(START + TEN_MINUTES));
        assert_eq!(warnings.0.load(Ordering::SeqCst), 2, "the second step back is");
    });
}

// shows: S165
#[test]
fn the_timestamp_comes_back_out() {
    for millis in [0, 1, START, MILLIS_MASK] {
        assert_eq!(timestamp_of(assemble(tick(millis), 0)), Some(millis));
    }
    assert_eq!(timestamp_of(Uuid::nil()), None);
    assert_eq!(timestamp_of(Uuid::max()), None);
    assert_eq!(timestamp_of(Uuid::from_u64_pair(0x7000, 0)), None, "version 7 with a foreign variant");
}

// shows: S164
#[test]
fn the_random_part_differs_between_ids() {
    let generator = UuidV7Generator::with_clock(TestClock::frozen());
    let random: HashSet<u64> = (0..1_000).map(|_| random_of(generator.generate())).collect();
    assert_eq!(random.len(), 1_000);

    // Each of the 62 bits takes both values; by chance this fails once in 2^993 runs.
    let (ones, zeros) = random.iter().fold((0, 0), |(ones, zeros), r| (ones | r, zeros | !r));
    assert_eq!((ones & RANDOM_MASK, zeros & RANDOM_MASK), (RANDOM_MASK, RANDOM_MASK));
}

#[test]
fn the_monotonic_clock_counts_from_its_origin() {
    let passed = Duration::from_secs(5);
    let origin = Instant::now().checked_sub(passed).expect("the machine has run for longer");
    assert!(SystemClock { origin }.monotonic() >= passed);
}
