//! Re-runs a transaction that lost a race against others.
//!
//! Deadlocks and serialization failures are normal under concurrent writes; the remedy is to run the whole transaction
//! again. [`rerun`] takes no connection: the work opens its own transaction and so can be repeated as a whole. A user's
//! transaction is not repeated, because everything else in it is unknown here; its error goes to the user.

use std::time::Duration;

/// The maximum number of tries of a transaction.
pub const TRIES: u32 = 5;

const FIRST_DELAY: Duration = Duration::from_millis(10);
const LONGEST_DELAY: Duration = Duration::from_millis(200);

/// The delay after the nth failed try: twice as long each time, at random between half of it and all of it, so that
/// transactions that collided do not collide again. `chance` lies between 0 and 1.
///
/// ```
/// use std::time::Duration;
/// use ratchet_store_core::transient::delay;
///
/// assert_eq!(delay(1, 1.0), Duration::from_millis(10));
/// assert_eq!(delay(3, 1.0), Duration::from_millis(40));
/// assert_eq!(delay(3, 0.0), Duration::from_millis(20));
/// ```
pub fn delay(failed: u32, chance: f64) -> Duration {
    jittered(FIRST_DELAY, LONGEST_DELAY, failed, chance)
}

/// The same delay with other bounds: it grows from `first` to `longest`.
pub fn jittered(first: Duration, longest: Duration, failed: u32, chance: f64) -> Duration {
    let doubled = 2_u32.saturating_pow(failed.saturating_sub(1));
    let full = first.saturating_mul(doubled).min(longest);
    full / 2 + (full / 2).mul_f64(chance.clamp(0.0, 1.0))
}

/// Runs a whole transaction, and again while it fails with an error that `is_transient`, [`TRIES`] times at most.
///
/// The work must begin a transaction of its own, and must roll it back or drop its connection when it fails.
///
/// # Errors
/// The first error that is not transient, or the last one.
///
/// # Cancellation safety
/// Dropping the future drops the work in the middle, with the effect that the work itself defines.
pub async fn rerun<T, E, W, F>(is_transient: impl Fn(&E) -> bool, mut work: W) -> Result<T, E>
where
    W: FnMut() -> F,
    F: Future<Output = Result<T, E>>,
{
    let mut failed = 0;
    loop {
        match work().await {
            Err(error) if failed + 1 < TRIES && is_transient(&error) => {
                failed += 1;
                tokio::time::sleep(delay(failed, rand::random())).await;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Trouble {
        Deadlock,
        Syntax,
    }

    /// Fails `failures` times, then succeeds with the number of the try.
    async fn run(failures: u32, trouble: Trouble) -> (Result<u32, Trouble>, u32) {
        let tries = Cell::new(0);
        let result = rerun(
            |error| *error == Trouble::Deadlock,
            || async {
                tries.set(tries.get() + 1);
                if tries.get() <= failures { Err(trouble) } else { Ok(tries.get()) }
            },
        )
        .await;
        (result, tries.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_transaction_that_lost_is_run_again_until_it_succeeds() {
        assert_eq!(run(0, Trouble::Deadlock).await, (Ok(1), 1));
        assert_eq!(run(4, Trouble::Deadlock).await, (Ok(5), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn the_fifth_failure_is_the_answer() {
        assert_eq!(run(5, Trouble::Deadlock).await, (Err(Trouble::Deadlock), 5));
        assert_eq!(run(u32::MAX, Trouble::Deadlock).await, (Err(Trouble::Deadlock), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn other_trouble_is_the_answer_at_once_and_without_a_delay() {
        let begun = tokio::time::Instant::now();
        assert_eq!(run(1, Trouble::Syntax).await, (Err(Trouble::Syntax), 1));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_between_the_tries_are_bounded() {
        let begun = tokio::time::Instant::now();
        let _ = run(5, Trouble::Deadlock).await;
        // 10 + 20 + 40 + 80 ms at most, half of it at least; the paused clock counts whole milliseconds, rounded up.
        assert!((75..=154).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_future_of_it_can_be_sent_to_another_thread() {
        fn sendable<T: Send>(_: &T) {}
        sendable(&rerun(|_: &Trouble| true, || async { Ok::<_, Trouble>(()) }));
    }

    proptest! {
        #[test]
        fn a_delay_lies_between_half_and_all_of_its_bound(failed in 0_u32.., chance in -1.0..2.0_f64) {
            let bound = LONGEST_DELAY.min(FIRST_DELAY.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1))));
            let delay = delay(failed, chance);
            prop_assert!(delay <= bound && delay >= bound / 2, "{delay:?} of {bound:?}");
        }
    }
}
