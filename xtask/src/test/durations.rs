//! The durations of tests, which test programs on stable Rust do not print.

use std::time::Duration;

/// The duration of each test of one program.
///
/// A program starts its tests in the order in which it lists them, `threads` at once, and prints a line when one ends.
/// So the first `threads` tests start with the program, and each end starts the next test in order.
pub(super) fn durations(
    order: &[String],
    ends: &[(String, Duration)],
    threads: usize,
) -> Vec<(String, Duration)> {
    let begun = |test: &String| {
        let at = order.iter().position(|name| name == test)?;
        match at.checked_sub(threads) {
            None => Some(Duration::ZERO),
            Some(before) => ends.get(before).map(|(_, end)| *end),
        }
    };
    let took = |(test, end): &(String, Duration)| Some((test.clone(), end.saturating_sub(begun(test)?)));
    ends.iter().filter_map(took).collect()
}

/// The tests that had started but not ended when the program ended.
pub(super) fn unfinished(order: &[String], ends: &[(String, Duration)], threads: usize) -> Vec<String> {
    let begun = order.iter().take(ends.len() + threads);
    begun.filter(|test| !ends.iter().any(|(ended, _)| ended == *test)).cloned().collect()
}

/// The tests in the output of `--list`, in order.
pub(super) fn listed(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn seconds(list: &[(&str, u64)]) -> Vec<(String, Duration)> {
        list.iter().map(|(name, end)| ((*name).to_owned(), Duration::from_secs(*end))).collect()
    }

    #[test]
    fn each_end_starts_the_next_test() {
        let order = names(&["a", "b", "c", "d"]);
        // On two threads: `a` and `b` start at 0, `c` when `b` ends at 2, `d` when `a` ends at 5.
        let ends = seconds(&[("b", 2), ("a", 5), ("c", 6), ("d", 6)]);
        assert_eq!(durations(&order, &ends, 2), seconds(&[("b", 2), ("a", 5), ("c", 4), ("d", 1)]));
        let one_by_one = seconds(&[("a", 2), ("b", 5), ("c", 6), ("d", 6)]);
        assert_eq!(durations(&order, &one_by_one, 1), seconds(&[("a", 2), ("b", 3), ("c", 1), ("d", 0)]));
    }

    #[test]
    fn a_program_that_breaks_off_leaves_tests_unfinished() {
        let order = names(&["a", "b", "c", "d"]);
        assert_eq!(unfinished(&order, &seconds(&[("b", 2)]), 2), ["a", "c"]);
        assert_eq!(unfinished(&order, &[], 2), ["a", "b"]);
        let all = seconds(&[("b", 2), ("a", 5), ("c", 6), ("d", 6)]);
        assert_eq!(unfinished(&order, &all, 2), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_was_not_listed_has_no_duration() {
        assert_eq!(durations(&names(&["a"]), &seconds(&[("x", 1), ("a", 2)]), 1), seconds(&[("a", 2)]));
    }

    #[test]
    fn a_list_is_read_in_order() {
        assert_eq!(listed("b::c: test\na: test\nd: benchmark\n\n2 tests, 1 benchmark\n"), ["b::c", "a"]);
    }
}
