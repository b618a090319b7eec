use proptest::prelude::*;
use ratchet_api::options::BreakerSettings;

use super::*;

const SERVICE: &str = "payment-gateway";
const OPEN_FOR: Duration = Duration::from_secs(30);
const TRIALS: u32 = 3;

/// Breakers of the standard profile, 50 % of the last 100 calls but at least 5, with a clock that stands still.
struct Fixture {
    breakers: CircuitBreakers,
    now: Arc<Mutex<Instant>>,
}

impl Fixture {
    fn new() -> Self {
        Self::with(BreakerOptions::default())
    }

    fn with(options: BreakerOptions) -> Self {
        let now = Arc::new(Mutex::new(Instant::now()));
        let shown = Arc::clone(&now);
        Self { breakers: CircuitBreakers::new(options).with_clock(move || *shown.lock().unwrap()), now }
    }

    fn open() -> Self {
        let fixture = Self::new();
        fixture.report(&[true; 5]);
        assert_eq!(fixture.state(), CircuitState::Open);
        fixture
    }

    fn half_open() -> Self {
        let fixture = Self::open();
        fixture.advance(OPEN_FOR);
        assert_eq!(fixture.state(), CircuitState::HalfOpen);
        fixture
    }

    fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
    }

    fn report(&self, failed: &[bool]) {
        let outage = JobFailure::new("ConnectError", "refused");
        for failed in failed {
            self.breakers.report(SERVICE, failed.then_some(&outage));
        }
    }

    fn enter(&self) -> Gate {
        self.breakers.enter(SERVICE)
    }

    /// How many calls are let in until one is not.
    fn let_in(&self) -> usize {
        (0..1_000).take_while(|_| self.enter() == Gate::Admit).count()
    }

    fn status(&self) -> BreakerStatus {
        self.breakers.states().into_iter().find(|status| status.service == SERVICE).unwrap()
    }

    fn state(&self) -> CircuitState {
        self.status().state
    }
}

fn closed_for(retry_in: Duration) -> Gate {
    Gate::Reject { retry_in }
}

// shows: S118
#[test]
fn it_opens_once_enough_of_enough_calls_failed() {
    let (ok, failed) = (false, true);
    for (calls, state) in [
        (vec![failed; 4], CircuitState::Closed),
        (vec![failed; 5], CircuitState::Open),
        (vec![ok, ok, ok, failed, failed], CircuitState::Closed),
        (vec![ok, ok, failed, failed, failed], CircuitState::Open),
        (vec![failed, failed, failed, ok, ok], CircuitState::Open),
        (vec![ok, ok, ok, failed, failed, failed], CircuitState::Open),
        ([vec![ok; 100], vec![failed; 49]].concat(), CircuitState::Closed),
        ([vec![ok; 100], vec![failed; 50]].concat(), CircuitState::Open),
        ([vec![ok; 1_000], vec![failed; 50]].concat(), CircuitState::Open),
    ] {
        let fixture = Fixture::new();
        fixture.report(&calls);
        assert_eq!(fixture.state(), state, "{calls:?}");
    }
}

// shows: S117
#[test]
fn a_profile_that_a_method_names_holds_unless_another_was_given_by_hand() {
    let breakers = CircuitBreakers::new(BreakerOptions::default()).profile("mail", BreakerProfile::Critical);
    for service in [SERVICE, "mail"] {
        breakers.declare(service, BreakerProfile::Fast);
        assert_eq!(breakers.enter(service), Gate::Admit);
    }
    assert_eq!(breakers.enter("other"), Gate::Admit);
    let profiles: Vec<_> =
        breakers.states().into_iter().map(|state| (state.service, state.profile)).collect();
    let expected = [
        ("mail", BreakerProfile::Critical),
        ("other", BreakerProfile::Standard),
        (SERVICE, BreakerProfile::Fast),
    ];
    assert_eq!(profiles, expected.map(|(service, profile)| (service.to_owned(), profile)));
}

#[test]
fn every_profile_has_its_own_numbers() {
    for (profile, opens_after, open_secs, trials) in [
        (BreakerProfile::Standard, 5, 30, 3),
        (BreakerProfile::Fast, 3, 10, 2),
        (BreakerProfile::Critical, 10, 60, 5),
        (BreakerProfile::ExternalApi, 5, 60, 3),
    ] {
        let Fixture { breakers, now } = Fixture::new();
        let fixture = Fixture { breakers: breakers.profile(SERVICE, profile), now };
        fixture.report(&vec![true; opens_after - 1]);
        assert_eq!(fixture.enter(), Gate::Admit, "{profile:?}");
        fixture.report(&[true]);
        assert_eq!(fixture.enter(), closed_for(Duration::from_secs(open_secs)), "{profile:?}");
        fixture.advance(Duration::from_secs(open_secs));
        assert_eq!(fixture.let_in(), trials, "{profile:?}");
        assert_eq!(fixture.status().profile, profile);
    }
}

// shows: S75 S118
#[test]
fn an_open_one_tells_the_time_that_is_left() {
    let fixture = Fixture::open();
    for (passed, left) in [(0, 30_000), (12_000, 18_000), (17_999, 1)] {
        fixture.advance(Duration::from_millis(passed));
        assert_eq!(fixture.enter(), closed_for(Duration::from_millis(left)));
        assert_eq!(fixture.status().retry_in, Some(Duration::from_millis(left)));
    }
    fixture.advance(Duration::from_millis(1));
    assert_eq!(fixture.status().retry_in, None);
    assert_eq!(fixture.enter(), Gate::Admit);
}

#[test]
fn a_late_report_does_not_prolong_an_open_one() {
    let fixture = Fixture::open();
    fixture.advance(OPEN_FOR / 2);
    fixture.report(&[true, false, true]);
    fixture.breakers.abandon(SERVICE);
    assert_eq!(fixture.enter(), closed_for(OPEN_FOR / 2));
}

#[test]
fn it_closes_when_all_trials_succeed() {
    let fixture = Fixture::half_open();
    assert_eq!(fixture.let_in(), TRIALS as usize);
    fixture.report(&[false; 2]);
    assert_eq!(fixture.state(), CircuitState::HalfOpen);
    fixture.report(&[false]);
    assert_eq!(fixture.state(), CircuitState::Closed);
    fixture.report(&[true; 4]);
    assert_eq!(fixture.state(), CircuitState::Closed, "what was before the outage is forgotten");
    assert_eq!(fixture.enter(), Gate::Admit);
}

#[test]
fn one_failed_trial_opens_it_for_the_whole_time_again() {
    let fixture = Fixture::half_open();
    assert_eq!(fixture.let_in(), TRIALS as usize);
    fixture.advance(Duration::from_secs(1));
    fixture.report(&[false, true]);
    assert_eq!(fixture.enter(), closed_for(OPEN_FOR));
    fixture.report(&[false]);
    assert_eq!(fixture.enter(), closed_for(OPEN_FOR), "the last trial comes too late");
}

#[test]
fn an_abandoned_trial_is_given_to_another_and_counts_as_nothing() {
    let fixture = Fixture::half_open();
    assert_eq!(fixture.let_in(), TRIALS as usize);
    fixture.breakers.abandon(SERVICE);
    assert_eq!(fixture.let_in(), 1);
    fixture.report(&[false; 2]);
    fixture.breakers.abandon(SERVICE);
    fixture.breakers.abandon(SERVICE);
    assert_eq!(fixture.let_in(), 1, "no more are given back than are out");
    fixture.report(&[false]);
    assert_eq!(fixture.state(), CircuitState::Closed);

    fixture.breakers.abandon(SERVICE);
    assert_eq!((fixture.status().calls, fixture.status().failures), (0, 0));
}

#[test]
fn trials_that_never_report_are_replaced() {
    let fixture = Fixture::half_open();
    assert_eq!(fixture.let_in(), TRIALS as usize);
    fixture.report(&[false]);
    fixture.advance(OPEN_FOR - Duration::from_secs(1));
    assert_eq!(fixture.enter(), closed_for(Duration::from_secs(1)));
    fixture.advance(Duration::from_secs(1));
    assert_eq!(fixture.let_in(), 2);
    fixture.report(&[false; 2]);
    assert_eq!(fixture.state(), CircuitState::Closed);
}

#[test]
fn services_do_not_affect_each_other() {
    let fixture = Fixture::open();
    assert_eq!(fixture.breakers.enter("mail"), Gate::Admit);
    let states = fixture.breakers.states();
    let seen: Vec<_> = states.iter().map(|status| (status.service.as_str(), status.state)).collect();
    assert_eq!(seen, [("mail", CircuitState::Closed), (SERVICE, CircuitState::Open)]);
}

#[test]
fn the_calls_that_opened_it_can_be_read_while_it_is_open() {
    let fixture = Fixture::new();
    fixture.report(&[false, true, false, true, true]);
    let status = fixture.status();
    assert_eq!((status.state, status.calls, status.failures), (CircuitState::Open, 5, 3));
}

#[test]
fn it_is_opened_and_reset_by_hand() {
    let fixture = Fixture::new();
    fixture.breakers.open(SERVICE, Duration::from_mins(10));
    assert_eq!(fixture.enter(), closed_for(Duration::from_mins(10)));
    assert!(fixture.breakers.reset(SERVICE));
    assert_eq!(fixture.enter(), Gate::Admit);
    assert!(!fixture.breakers.reset("unknown"));

    fixture.breakers.open(SERVICE, Duration::MAX);
    assert!(matches!(fixture.enter(), Gate::Reject { .. }));
    fixture.breakers.reset(SERVICE);
    assert_eq!((fixture.state(), fixture.status().calls), (CircuitState::Closed, 0));
}

#[test]
fn a_failure_that_says_not_to_try_again_is_no_failure_of_the_service() {
    let declined = JobFailure::new("Declined", "no money").do_not_retry("the issuer says no");
    let fixture = Fixture::new();
    fixture.report(&[true; 4]);
    for _ in 0..100 {
        assert_eq!(fixture.enter(), Gate::Admit);
        fixture.breakers.report(SERVICE, Some(&declined));
    }
    assert_eq!((fixture.state(), fixture.status().calls), (CircuitState::Closed, 4));

    let fixture = Fixture::half_open();
    for _ in 0..=TRIALS {
        assert_eq!(fixture.enter(), Gate::Admit, "it gives its trial back");
        fixture.breakers.report(SERVICE, Some(&declined));
    }
    assert_eq!(fixture.state(), CircuitState::HalfOpen, "nor is it a success");

    let fixture = Fixture::with(BreakerOptions { count_do_not_retry: true, ..BreakerOptions::default() });
    (0..5).for_each(|_| fixture.breakers.report(SERVICE, Some(&declined)));
    assert_eq!(fixture.state(), CircuitState::Open, "if asked for, it is");
}

#[test]
fn without_breakers_everything_is_let_in() {
    let fixture = Fixture::with(BreakerOptions { enabled: false, ..BreakerOptions::default() });
    fixture.report(&[true; 1_000]);
    assert_eq!(fixture.let_in(), 1_000);
    assert_eq!(fixture.breakers.states(), []);
}

#[test]
fn one_service_too_many_takes_the_place_of_the_closed_one_that_is_idle_longest() {
    let fixture = Fixture::open();
    let tick = Duration::from_millis(1);
    for n in 1..CircuitBreakers::MAX_SERVICES {
        fixture.advance(tick);
        fixture.breakers.enter(&format!("service-{n}"));
    }
    fixture.advance(tick);
    fixture.breakers.enter("service-1");
    fixture.breakers.enter("one-more");
    let kept = |service: &str| fixture.breakers.states().iter().any(|status| status.service == service);
    assert_eq!(fixture.breakers.states().len(), CircuitBreakers::MAX_SERVICES);
    assert!(kept(SERVICE) && kept("service-1") && kept("one-more"));
    assert!(!kept("service-2"));
}

#[test]
fn a_service_that_finds_no_room_is_let_in() {
    let fixture = Fixture::new();
    for n in 0..CircuitBreakers::MAX_SERVICES {
        fixture.breakers.open(&format!("service-{n}"), OPEN_FOR);
    }
    fixture.report(&[true; 100]);
    assert_eq!(fixture.enter(), Gate::Admit);
    assert_eq!(fixture.breakers.states().len(), CircuitBreakers::MAX_SERVICES);
}

#[test]
fn it_stands_behind_the_plug_point_and_is_used_by_many_threads() {
    let fixture = Fixture::new();
    let strategy: &dyn ResilienceStrategy = &fixture.breakers;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(strategy.enter(SERVICE), Gate::Admit);
                    strategy.report(SERVICE, None);
                }
            });
        }
    });
    assert_eq!(fixture.status().calls, 40);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enter,
    Report(bool),
    Abandon,
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Enter),
        4 => any::<bool>().prop_map(Step::Report),
        1 => Just(Step::Abandon),
        2 => (0u64..40_000).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn the_first_call_that_opens_it_is_the_one_that_a_plain_count_finds(
        calls in prop::collection::vec(any::<bool>(), 0..80),
        failure_rate in 1u8..=100,
        window in 1u32..30,
        min_calls in 1u32..30,
    ) {
        let min_calls = min_calls.min(window);
        let settings = BreakerSettings { failure_rate, window, min_calls, open_for: OPEN_FOR, half_open_calls: TRIALS };
        let bad = |upto: usize| {
            let newest = &calls[upto.saturating_sub(window as usize)..upto];
            let failures = newest.iter().filter(|failed| **failed).count();
            newest.len() >= min_calls as usize && failures * 100 >= usize::from(failure_rate) * newest.len()
        };
        let expected = (1..=calls.len()).find(|upto| bad(*upto));

        let fixture = Fixture::with(BreakerOptions { standard: settings, ..BreakerOptions::default() });
        let opened = (1..=calls.len()).find(|upto| {
            fixture.report(&calls[upto - 1..*upto]);
            fixture.state() == CircuitState::Open
        });
        prop_assert_eq!(opened, expected);
    }

    #[test]
    fn a_closed_gate_always_tells_a_time_after_which_it_opens(steps in steps()) {
        let fixture = Fixture::new();
        fixture.enter();
        for step in steps {
            match step {
                Step::Enter => drop(fixture.enter()),
                Step::Report(failed) => fixture.report(&[failed]),
                Step::Abandon => fixture.breakers.abandon(SERVICE),
                Step::Advance(millis) => fixture.advance(Duration::from_millis(millis)),
            }
            if let Some(retry_in) = fixture.status().retry_in {
                prop_assert!(!retry_in.is_zero() && retry_in <= OPEN_FOR);
                prop_assert_eq!(fixture.enter(), closed_for(retry_in));
            }
        }
        if let Some(retry_in) = fixture.status().retry_in {
            fixture.advance(retry_in);
            prop_assert_eq!(fixture.enter(), Gate::Admit);
        }
    }

    #[test]
    fn no_more_trials_are_out_than_are_allowed(steps in steps()) {
        let fixture = Fixture::half_open();
        let (mut out, mut succeeded) = (0u32, 0u32);
        for step in steps {
            match step {
                Step::Enter if fixture.enter() == Gate::Admit => out += 1,
                Step::Report(false) if out > 0 => {
                    fixture.report(&[false]);
                    (out, succeeded) = (out - 1, succeeded + 1);
                }
                Step::Abandon if out > 0 => {
                    fixture.breakers.abandon(SERVICE);
                    out -= 1;
                }
                _ => {}
            }
            if fixture.state() == CircuitState::Closed {
                break;
            }
            prop_assert!(out + succeeded <= TRIALS);
        }
        prop_assert_eq!(fixture.state() == CircuitState::Closed, succeeded == TRIALS);
    }
}
