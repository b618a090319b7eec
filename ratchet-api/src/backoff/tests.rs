use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);

// shows: S16 S96
#[test]
fn delays_follow_the_policy() {
    let table = [
        // policy, attempt, delay
        (Backoff::None, 1, Duration::ZERO),
        (Backoff::None, u32::MAX, Duration::ZERO),
        (Backoff::Fixed(30 * SECOND), 1, 30 * SECOND),
        (Backoff::Fixed(30 * SECOND), 1_000, 30 * SECOND),
        (Backoff::Fixed(2 * DAY), 1, DAY),
        (Backoff::Exponential(SECOND), 0, SECOND),
        (Backoff::Exponential(SECOND), 1, SECOND),
        (Backoff::Exponential(SECOND), 2, 2 * SECOND),
        (Backoff::Exponential(SECOND), 5, 16 * SECOND),
        (Backoff::Exponential(SECOND), 17, 65_536 * SECOND),
        (Backoff::Exponential(SECOND), 18, DAY),
        (Backoff::Exponential(SECOND), 1_000, DAY),
        (Backoff::Exponential(SECOND), u32::MAX, DAY),
        (Backoff::Exponential(Duration::MAX), 2, DAY),
        (Backoff::Exponential(Duration::ZERO), 1_000, Duration::ZERO),
        // The exponent stops at 20, so a small base levels off below a day.
        (Backoff::Exponential(millis(1)), 21, millis(1 << 20)),
        (Backoff::Exponential(millis(1)), 22, millis(1 << 20)),
        (Backoff::Exponential(millis(1)), u32::MAX, millis(1 << 20)),
    ];
    for (backoff, attempt, delay) in table {
        assert_eq!(backoff.delay(attempt), delay, "{backoff} after failure {attempt}");
    }
}

// shows: S96
#[test]
fn jitter_spreads_by_ten_percent_to_both_sides() {
    let backoff = Backoff::Fixed(100 * SECOND);
    assert_eq!(backoff.jittered(1, 0.0), 90 * SECOND);
    assert_eq!(backoff.jittered(1, 0.5), 100 * SECOND);
    assert_eq!(backoff.jittered(1, 0.75), 105 * SECOND);
    assert_eq!(Backoff::None.jittered(7, 0.9), Duration::ZERO);
}

#[test]
fn a_fraction_outside_its_range_cannot_do_harm() {
    let backoff = Backoff::Fixed(100 * SECOND);
    for fraction in [-1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let delay = backoff.jittered(1, fraction);
        assert!((90 * SECOND..=110 * SECOND).contains(&delay), "{fraction} gave {delay:?}");
    }
}

#[test]
fn text_and_columns_describe_the_same_policy() {
    let table = [
        (Backoff::None, "none", "NONE", 0),
        (Backoff::Fixed(millis(0)), "fixed 0ms", "FIXED", 0),
        (Backoff::Fixed(millis(1_500)), "fixed 1500ms", "FIXED", 1_500),
        (Backoff::Fixed(90 * SECOND), "fixed 90s", "FIXED", 90_000),
        (Backoff::Exponential(30 * SECOND), "exponential 30s", "EXPONENTIAL", 30_000),
        (Backoff::Exponential(300 * SECOND), "exponential 5m", "EXPONENTIAL", 300_000),
        (Backoff::Exponential(7_200 * SECOND), "exponential 2h", "EXPONENTIAL", 7_200_000),
        (Backoff::Exponential(DAY), "exponential 1d", "EXPONENTIAL", 86_400_000),
    ];
    for (backoff, text, name, param) in table {
        assert_eq!(backoff.to_string(), text);
        assert_eq!(text.parse(), Ok(backoff));
        assert_eq!((backoff.policy_name(), backoff.param_millis()), (name, param));
        assert_eq!(Backoff::from_parts(name, param), Ok(backoff));
        assert_eq!(serde_json::to_value(backoff).unwrap(), serde_json::json!(text));
    }
}

#[test]
fn a_delay_below_a_millisecond_is_not_lost() {
    let backoff = Backoff::Fixed(Duration::from_micros(1));
    assert_eq!((backoff.param_millis(), backoff.to_string().as_str()), (1, "fixed 1ms"));
    assert_eq!(Backoff::Fixed(Duration::MAX).param_millis(), LONGEST);
}

#[test]
fn what_is_not_a_policy_is_named_in_the_error() {
    let texts =
        ["", "never", "fixed", "fixed 10", "fixed s", "fixed -1s", "fixed 1.5s", "fixed 10s 20s", "none 1s"];
    for text in texts.into_iter().chain(["Fixed 10s", "fixed 10 s", "fixed 99999999999999999999s"]) {
        assert_eq!(text.parse::<Backoff>(), Err(UnknownValue::new("backoff", text)));
    }
    // Multiplying by the unit must not wrap round.
    assert!("fixed 18446744073709551615d".parse::<Backoff>().is_err());
    assert_eq!(Backoff::from_parts("fixed", 1), Err(UnknownValue::new("backoff policy", "fixed")));
    let error = serde_json::from_str::<Backoff>("\"linear 1s\"").unwrap_err();
    assert!(error.to_string().contains("unknown backoff `linear 1s`"));
}

/// The longest delay that fits the column, in milliseconds.
const LONGEST: u64 = i64::MAX.unsigned_abs();

fn any_backoff() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        Just(Backoff::None),
        (0..=LONGEST).prop_map(|ms| Backoff::Fixed(millis(ms))),
        (0..=LONGEST).prop_map(|ms| Backoff::Exponential(millis(ms))),
        (0..100_000_u64).prop_map(|ms| Backoff::Exponential(millis(ms))),
    ]
}

proptest! {
    #[test]
    fn delays_never_shrink_and_never_pass_a_day(backoff in any_backoff(), attempt in any::<u32>()) {
        let delay = backoff.delay(attempt);
        prop_assert!(delay <= backoff.delay(attempt.saturating_add(1)));
        prop_assert!(delay <= DAY);
    }

    #[test]
    fn jitter_stays_inside_its_band(backoff in any_backoff(), attempt in any::<u32>(), fraction in 0.0..1.0) {
        let (delay, jittered) = (backoff.delay(attempt), backoff.jittered(attempt, fraction));
        prop_assert!(jittered.abs_diff(delay) <= delay / 10 + Duration::from_nanos(1));
    }

    #[test]
    fn text_round_trips(backoff in any_backoff()) {
        prop_assert_eq!(backoff.to_string().parse(), Ok(backoff));
        prop_assert_eq!(Backoff::from_parts(backoff.policy_name(), backoff.param_millis()), Ok(backoff));
    }
}
