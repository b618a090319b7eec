use proptest::prelude::*;

use super::*;

const BATCH: usize = 50;
/// The load that makes polling neither slower nor faster.
const EVEN: f64 = 1.0 / 3.0;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn polled(claimed: usize) -> PollSignal {
    PollSignal::Polled { claimed, batch_size: BATCH }
}

/// A strategy with a clock that advances by each delay, as a poller's would.
struct Run {
    polling: AdaptivePolling,
    now: Instant,
}

impl Run {
    fn new() -> Self {
        let now = Instant::now();
        Self { polling: AdaptivePolling::new(PollingOptions::default(), now), now }
    }

    fn woken() -> Self {
        let mut run = Self::new();
        run.signal(PollSignal::Wakeup, 0.0);
        run
    }

    fn signal(&mut self, signal: PollSignal, load: f64) -> Duration {
        let delay = self.polling.next_delay(signal, load, self.now);
        self.now += delay;
        delay
    }

    fn claimed(&mut self, counts: impl IntoIterator<Item = usize>, load: f64) -> Vec<Duration> {
        counts.into_iter().map(|count| self.signal(polled(count), load)).collect()
    }

    fn empties(&mut self, count: usize) -> Vec<Duration> {
        self.claimed(vec![0; count], 0.0)
    }
}

// shows: S51 S59
#[test]
fn a_wakeup_starts_a_burst_from_every_mode() {
    let mut run = Run::new();
    assert_eq!(run.signal(PollSignal::Wakeup, 0.0), millis(500));
    assert_eq!(run.polling.mode(), PollingMode::Burst);

    run.now += secs(300);
    assert_eq!(run.signal(polled(0), 0.0), secs(60));
    assert_eq!(run.polling.mode(), PollingMode::DeepIdle);
    assert_eq!(run.signal(PollSignal::Wakeup, 0.0), millis(500));
    assert_eq!(run.signal(polled(0), 0.0), millis(500), "one empty poll does not end a burst");
}

// shows: S51 S52
#[test]
fn five_empty_polls_in_a_row_end_a_burst() {
    let mut run = Run::woken();
    let mut expected = vec![millis(500); 4];
    expected.push(secs(2));
    assert_eq!(run.empties(5), expected);
    assert_eq!(run.polling.mode(), PollingMode::Normal);

    let mut run = Run::woken();
    run.empties(4);
    run.claimed([1], 0.0);
    assert_eq!(run.empties(4), [millis(500); 4], "a job in between starts the count anew");
    run.signal(PollSignal::Wakeup, 0.0);
    assert_eq!(run.empties(4), [millis(500); 4], "so does a wakeup");
}

// shows: S51
#[test]
fn a_burst_lasts_as_long_as_jobs_are_found() {
    let mut run = Run::woken();
    assert_eq!(run.claimed(vec![3; 100], EVEN), [millis(500); 100]);
}

// shows: S50 S52 S53 S57
#[test]
fn empty_polls_stretch_the_delay_exponentially_until_deep_idle() {
    let mut run = Run::new();
    // Doubled by every fifth empty poll, tripled by every second one after half a minute.
    let expected = [2, 2, 2, 2, 4, 4, 4, 4, 4, 8, 8, 24, 24, 30, 30, 30, 30, 30, 30, 30, 60, 60];
    assert_eq!(run.empties(expected.len()), expected.map(secs));
}

#[test]
fn the_delay_grows_faster_after_more_than_half_a_minute() {
    for (quiet, delay) in [(secs(30), secs(2)), (millis(30_001), secs(6))] {
        let mut run = Run::new();
        let start = run.now;
        run.empties(1);
        run.now = start + quiet;
        assert_eq!(run.empties(1), [delay]);
    }
}

#[test]
fn a_found_job_makes_a_grown_delay_short_again() {
    let mut run = Run::new();
    run.empties(12);
    assert_eq!(run.claimed([1, 0, 0, 0, 0, 0], 0.0), [2, 2, 2, 2, 2, 4].map(secs));
}

#[test]
fn at_even_load_empty_polls_reach_the_longest_normal_delay() {
    let mut run = Run::new();
    let mut delays = run.claimed(vec![0; 40], EVEN);
    delays.dedup();
    assert_eq!(delays, [4, 8, 24, 30, 60].map(secs));
}

// shows: S53
#[test]
fn deep_idle_begins_after_five_minutes_without_a_job() {
    for (waited, mode, delay) in [
        (millis(299_999), PollingMode::Normal, secs(4)),
        (secs(300), PollingMode::DeepIdle, secs(60)),
        (secs(3_000), PollingMode::DeepIdle, secs(60)),
    ] {
        let mut run = Run::new();
        run.now += waited;
        assert_eq!(run.signal(polled(0), EVEN), delay, "after {waited:?}");
        assert_eq!(run.polling.mode(), mode);
    }
}

// shows: S53 S60
#[test]
fn a_found_job_ends_deep_idle() {
    let mut run = Run::new();
    run.now += secs(300);
    run.empties(1);
    assert_eq!(run.claimed([1], 0.0), [secs(2)]);
    assert_eq!(run.polling.mode(), PollingMode::Normal);
    assert_eq!(run.empties(1), [secs(2)]);
}

// shows: S55
#[test]
fn three_full_batches_in_a_row_divide_the_delay_by_four() {
    let half_full = BATCH / 2;
    let mut run = Run::new();
    let delays = run.claimed([half_full, BATCH, BATCH, BATCH, BATCH, half_full], EVEN);
    assert_eq!(delays, [2_000, 1_000, 1_000, 500, 500, 2_000].map(millis));

    let mut run = Run::woken();
    let delays = run.claimed([half_full, BATCH, BATCH, BATCH, half_full], EVEN);
    assert_eq!(delays, [500, 250, 250, 125, 500].map(millis));
}

// shows: S55
#[test]
fn only_full_batches_in_a_row_count() {
    let mut run = Run::new();
    run.claimed([BATCH, BATCH, BATCH - 1], EVEN);
    assert_eq!(run.claimed([BATCH, BATCH], EVEN), [secs(1); 2]);

    let mut run = Run::new();
    run.claimed([BATCH, BATCH], EVEN);
    run.signal(PollSignal::Failed, EVEN);
    run.signal(PollSignal::Polled { claimed: 0, batch_size: 0 }, EVEN);
    assert_eq!(run.claimed([BATCH], EVEN), [millis(500)], "signals without a result do not interrupt");
}

#[test]
fn very_short_delays_are_not_divided_to_nothing() {
    let shortest = PollingOptions {
        burst_delay: millis(50),
        min_delay: millis(50),
        max_delay: millis(80),
        ..PollingOptions::default()
    };
    let now = Instant::now();
    let mut polling = AdaptivePolling::new(shortest, now);
    let delays = [BATCH; 3].map(|count| polling.next_delay(polled(count), 0.0, now));
    assert_eq!(delays, [80, 80, 50].map(millis));
}

// shows: S54
#[test]
fn the_trend_of_the_last_ten_polls_halves_or_doubles_the_delay() {
    let after = |fills: &[usize]| {
        let mut run = Run::new();
        *run.claimed(fills.iter().copied(), 2.0 / 3.0).last().unwrap()
    };
    let (low, even, high) = (BATCH * 3 / 20, BATCH / 2, BATCH * 9 / 10);
    assert_eq!(after(&[even; 10]), secs(3));
    assert_eq!(after(&[low; 10]), secs(6));
    assert_eq!(after(&[high; 10]), secs(2), "never below the shortest");
    assert_eq!(after(&[[high; 50].as_slice(), &[low; 9]].concat()), secs(3), "nine are not ten");
    assert_eq!(after(&[[high; 50].as_slice(), &[low; 10]].concat()), secs(6), "older polls are forgotten");
}

// shows: S56
#[test]
fn load_slows_polling() {
    let at = |load, woken| {
        let mut run = if woken { Run::woken() } else { Run::new() };
        run.claimed([BATCH / 2], load)[0]
    };
    for (load, normal, burst) in [
        (0.0, 2_000, 500),
        (EVEN, 2_000, 500),
        (0.5, 2_500, 625),
        (1.0, 4_000, 1_000),
        (7.0, 4_000, 1_000),
        (-1.0, 2_000, 500),
        (f64::NAN, 2_000, 500),
    ] {
        assert_eq!(at(load, false), millis(normal), "normal at {load}");
        assert_eq!(at(load, true), millis(burst), "burst at {load}");
    }
}

// shows: S56
#[test]
fn low_load_allows_faster_polling() {
    let idle = |load| {
        let mut run = Run::new();
        run.empties(5);
        run.signal(polled(0), load)
    };
    assert_eq!([1.0, EVEN, 0.0].map(idle), [16, 8, 4].map(secs));
}

#[test]
fn a_failed_poll_is_tried_again_after_five_seconds_and_changes_nothing() {
    let mut run = Run::woken();
    run.empties(4);
    assert_eq!(run.signal(PollSignal::Failed, 1.0), secs(5));
    assert_eq!(run.polling.mode(), PollingMode::Burst);
    assert_eq!(run.empties(1), [secs(2)]);
}

#[test]
fn a_poll_that_could_find_nothing_is_no_empty_poll() {
    let mut run = Run::woken();
    for _ in 0..10 {
        assert_eq!(run.signal(PollSignal::Polled { claimed: 0, batch_size: 0 }, 0.0), millis(500));
    }
}

fn signals() -> impl Strategy<Value = Vec<(PollSignal, f64, u64)>> {
    let signal = prop_oneof![
        4 => (0..=BATCH).prop_map(polled),
        6 => Just(polled(0)),
        3 => Just(polled(BATCH)),
        1 => Just(PollSignal::Polled { claimed: 0, batch_size: 0 }),
        1 => Just(PollSignal::Wakeup),
        1 => Just(PollSignal::Failed),
    ];
    prop::collection::vec((signal, 0.0..=1.0, prop_oneof![0..5_000u64, 0..400_000u64]), 1..80)
}

fn options() -> impl Strategy<Value = PollingOptions> {
    let delays = prop::collection::vec(50u64..100_000, 4);
    (delays, 1u32..12, 1u64..600, 50u64..300_000).prop_map(|(mut delays, idle, deep, error)| {
        delays.sort_unstable();
        PollingOptions {
            burst_delay: millis(delays[0]),
            min_delay: millis(delays[1]),
            max_delay: millis(delays[2]),
            deep_idle_delay: millis(delays[3]),
            idle_threshold: idle,
            deep_idle_after: secs(deep),
            error_delay: millis(error),
            ..PollingOptions::default()
        }
    })
}

proptest! {
    // shows: S50 S60
    #[test]
    fn no_delay_is_longer_than_deep_idle_and_none_shorter_than_50_ms(options in options(), signals in signals()) {
        prop_assume!(options.validate().is_ok());
        let mut now = Instant::now();
        let mut polling = AdaptivePolling::new(options.clone(), now);
        for (signal, load, passed) in signals {
            now += millis(passed);
            let delay = polling.next_delay(signal, load, now);
            prop_assert!(delay >= millis(50) && delay <= options.deep_idle_delay, "{delay:?}");
        }
    }

    // shows: S52
    #[test]
    fn normal_delays_are_between_the_shortest_and_the_longest_unless_a_batch_was_full(signals in signals()) {
        let mut now = Instant::now();
        let mut polling = AdaptivePolling::new(PollingOptions::default(), now);
        let mut full = false;
        for (signal, load, passed) in signals {
            now += millis(passed);
            let delay = polling.next_delay(signal, load, now);
            if let PollSignal::Polled { claimed, batch_size: BATCH } = signal {
                full = claimed == BATCH;
            }
            if polling.mode() == PollingMode::Normal && signal != PollSignal::Failed && !full {
                prop_assert!(delay >= secs(2) && delay <= secs(30), "{delay:?}");
            }
        }
    }

    // shows: S56
    #[test]
    fn more_load_never_hastens(signals in signals(), loads in (0.0..=1.0, 0.0..=1.0)) {
        let mut now = Instant::now();
        let mut polling = AdaptivePolling::new(PollingOptions::default(), now);
        let (low, high) = if loads.0 < loads.1 { loads } else { (loads.1, loads.0) };
        for (signal, load, passed) in signals {
            now += millis(passed);
            let at = |load| polling.clone().next_delay(signal, load, now);
            prop_assert!(at(low) <= at(high));
            polling.next_delay(signal, load, now);
        }
    }

    #[test]
    fn the_same_signals_at_the_same_times_give_the_same_delays(signals in signals()) {
        let start = Instant::now();
        let run = || {
            let (mut polling, mut now) = (AdaptivePolling::new(PollingOptions::default(), start), start);
            signals.iter().map(|(signal, load, passed)| {
                now += millis(*passed);
                polling.next_delay(*signal, *load, now)
            }).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
