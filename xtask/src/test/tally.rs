//! The sum of the results of test programs.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use super::{
    STORES, crate_of,
    program::{Ended, Program},
};
use crate::tck::output::Results;

/// The name of the integration test that runs the conformance suite of a store.
const SUITE: &str = "tck";
/// The crate whose integration tests, named after stores, run the engine on them.
const ENGINE: &str = "ratchet-suite";
/// The most tests that may fail beside others and pass alone. A busy machine causes a few; more are a defect.
const MAX_UNSTEADY: usize = 3;
/// The number of slowest tests that are listed.
const SLOWEST: usize = 20;

/// The counts of one test program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    /// Adds up the lines `test result: ok. 5 passed; 0 failed; 1 ignored; …`; `None` if there is none.
    fn of(output: &str) -> Option<Self> {
        output.lines().filter_map(Self::parse).reduce(Self::plus)
    }

    fn parse(line: &str) -> Option<Self> {
        let (_, counts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
        let number = |what: &str| -> Option<usize> {
            counts.split(';').find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
        };
        Some(Self { passed: number("passed")?, failed: number("failed")?, skipped: number("ignored")? })
    }

    fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            passed: self.passed - other.passed,
            failed: self.failed - other.failed,
            skipped: self.skipped - other.skipped,
        }
    }

    fn total(self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailedTest {
    pub(super) program: Program,
    pub(super) name: String,
}

impl std::fmt::Display for FailedTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.program, self.name)
    }
}

/// The results of all programs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By crate and target.
    counts: BTreeMap<(String, String), Count>,
    failed_tests: Vec<FailedTest>,
    /// Programs that ended without a result.
    crashes: Vec<String>,
    /// Tests that failed beside others and passed alone.
    unsteady: Vec<FailedTest>,
    /// The output of the failures.
    pub(super) output: String,
    durations: Vec<(String, Duration)>,
}

impl Tally {
    /// Adds the results of a program; returns a line about them.
    pub(super) fn add(&mut self, ended: Ended) -> String {
        let Ended { program, took, failure, unfinished, output, durations } = ended;
        let failed = Results::of(&output).failed;
        let failed = failed.into_iter().map(|name| FailedTest { program: program.clone(), name });
        self.failed_tests.extend(failed);
        let mut count = Count::of(&output).unwrap_or_default();
        // A program that fails without a failed test has crashed, which counts as a failure.
        let is_silent = count == Count::default() && !output.contains("test result: ");
        if failure.is_some() && count.failed == 0 || is_silent {
            let how = failure.unwrap_or_else(|| "it told no result".to_owned());
            let at = match unfinished.as_slice() {
                [] => String::new(),
                tests => format!(" while it ran {}", tests.join(", ")),
            };
            self.crashes.push(format!("{program}: ended without a result{at} ({how})"));
            count.failed += 1;
        }
        if count.failed > 0 {
            self.output += &format!("---- {program}\n{}\n", failures_of(&output));
        }
        self.durations.extend(durations.into_iter().map(|(test, took)| (format!("{program}: {test}"), took)));
        let line = format!("{:<45} {count}, {:.1} s", program.to_string(), took.as_secs_f64());
        self.counts.insert((program.package, program.target), count);
        line
    }

    /// The failed tests to run again: none if there are many, or if a program crashed.
    pub(super) fn worth_another_try(&self) -> Vec<FailedTest> {
        let is_few = self.failed_tests.len() <= MAX_UNSTEADY && self.crashes.is_empty();
        let tests = self.failed_tests.iter().filter(|test| is_few && test.program.is_divisible());
        tests.cloned().collect()
    }

    /// Records the result of a failed test that ran alone; returns a line about it.
    pub(super) fn add_another_try(&mut self, test: FailedTest, ended: &Ended) -> String {
        let results = Results::of(&ended.output);
        let passed = ended.failure.is_none() && results.passed == [test.name.as_str()];
        if !passed {
            self.output += &format!("---- {test}, alone\n{}\n", failures_of(&ended.output));
            return format!("failed alone, too: {test}");
        }
        self.failed_tests.retain(|failed| *failed != test);
        if let Some(count) = self.counts.get_mut(&(test.program.package.clone(), test.program.target.clone()))
        {
            count.failed -= 1;
            count.passed += 1;
        }
        let line = format!("passed alone: {test}");
        self.unsteady.push(test);
        line
    }

    fn all(&self) -> Count {
        self.counts.values().copied().reduce(Count::plus).unwrap_or_default()
    }

    fn suite(&self, store: &str) -> Option<Count> {
        self.counts.get(&(crate_of(store), SUITE.to_owned())).copied()
    }

    fn engine(&self, store: &str) -> Option<Count> {
        self.counts.get(&(ENGINE.to_owned(), store.to_owned())).copied()
    }

    /// The slowest tests, a line per store, the rest, the failures, and the sum alone on the last line.
    pub(super) fn summary(&self, packages: &[String]) -> String {
        let mut text = self.slowest();
        let mut rest = self.all();
        for (store, _) in STORES {
            let line = match self.suite(store) {
                Some(count) => {
                    rest = rest.minus(count);
                    count.to_string()
                }
                None if packages.contains(&crate_of(store)) => "has no suite".to_owned(),
                None => "not yet built".to_owned(),
            };
            text += &format!("store {store:<9} {line}\n");
            if let Some(count) = self.engine(store) {
                rest = rest.minus(count);
                text += &format!("engine {store:<8} {count}\n");
            }
        }
        text += &format!("all the rest    {rest}\n");
        for test in &self.unsteady {
            text += &format!("UNSTEADY {test} (failed beside others, passed alone: mend it)\n");
        }
        for test in &self.failed_tests {
            text += &format!("FAILED {test}\n");
        }
        for crash in &self.crashes {
            text += &format!("FAILED {crash}\n");
        }
        text + &format!("\n{}\n", self.all())
    }

    fn slowest(&self) -> String {
        let mut durations: Vec<&(String, Duration)> = self.durations.iter().collect();
        durations.sort_by_key(|(_, took)| Reverse(*took));
        let lines = durations.iter().take(SLOWEST);
        let lines: String =
            lines.map(|(test, took)| format!("{:>6.1} s  {test}\n", took.as_secs_f64())).collect();
        if lines.is_empty() { lines } else { format!("the slowest tests\n{lines}\n") }
    }

    pub(super) fn failures(&self, packages: &[String]) -> Vec<String> {
        let mut failures = Vec::new();
        let count = self.all();
        if count.failed > 0 {
            failures.push(format!("{} tests failed", count.failed));
        }
        for (store, _) in STORES.iter().filter(|(store, _)| packages.contains(&crate_of(store))) {
            if self.suite(store).is_none_or(|count| count.total() == 0) {
                failures.push(format!("the suite of the {store} store ran no test"));
            }
            if self.engine(store).is_none_or(|count| count.total() == 0) {
                failures.push(format!("the engine suite ran no test on the {store} store"));
            }
        }
        failures
    }
}

/// The failures section of a test program's output, which is its last part; all of the output if it crashed.
fn failures_of(output: &str) -> &str {
    output.find("\nfailures:\n").map_or(output, |from| &output[from + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn ended(package: &str, target: &str, success: bool, output: &str) -> Ended {
        Ended {
            program: super::super::program::named(package, target),
            took: Duration::from_secs(1),
            failure: (!success).then(|| "signal: 6 (SIGABRT)".to_owned()),
            unfinished: Vec::new(),
            output: output.into(),
            durations: Vec::new(),
        }
    }

    fn result(passed: usize, failed: usize, ignored: usize) -> String {
        format!(
            "test result: x. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; finished in 1s\n"
        )
    }

    /// A tally in which the engine has passed on the memory store.
    fn begun() -> Tally {
        let mut tally = Tally::default();
        tally.add(ended("ratchet-suite", "memory", true, &result(30, 0, 0)));
        tally
    }

    fn good() -> Tally {
        let mut tally = begun();
        tally.add(ended("ratchet-suite", "postgres", true, &result(30, 0, 0)));
        tally.add(ended("ratchet-api", "ratchet_api", true, &result(7, 0, 1)));
        tally.add(ended("ratchet-store-memory", "tck", true, &result(40, 0, 0)));
        tally.add(ended("ratchet-store-postgres", "tck", true, &result(41, 0, 2)));
        tally.add(ended("workspace", "documentation", true, &(result(3, 0, 0) + &result(1, 0, 0))));
        tally
    }

    #[test]
    fn two_suites_of_one_name_are_told_apart() {
        let tally = good();
        let packages = packages(&["ratchet-store-memory", "ratchet-store-postgres"]);
        assert_eq!(
            tally.summary(&packages),
            "store memory    40 passed, 0 failed, 0 skipped\n\
             engine memory   30 passed, 0 failed, 0 skipped\n\
             store postgres  41 passed, 0 failed, 2 skipped\n\
             engine postgres 30 passed, 0 failed, 0 skipped\n\
             store mongodb   not yet built\n\
             store mysql     not yet built\n\
             store sqlite    not yet built\n\
             all the rest    11 passed, 0 failed, 1 skipped\n\
             \n\
             152 passed, 0 failed, 3 skipped\n"
        );
        assert!(tally.failures(&packages).is_empty());
    }

    #[test]
    fn a_failed_test_is_named_and_fails_the_run() {
        let mut tally = begun();
        let output = format!("test claim::a ... FAILED\n{}", result(39, 1, 0));
        let line = tally.add(ended("ratchet-store-memory", "tck", false, &output));
        assert!(line.ends_with("39 passed, 1 failed, 0 skipped, 1.0 s"), "{line}");
        let packages = packages(&["ratchet-store-memory"]);
        assert!(tally.summary(&packages).contains("FAILED ratchet-store-memory tck: claim::a\n"));
        assert_eq!(tally.failures(&packages), ["1 tests failed"]);
    }

    fn names(tests: &[FailedTest]) -> Vec<String> {
        tests.iter().map(FailedTest::to_string).collect()
    }

    /// A program with this many failed tests.
    fn failing(count: usize) -> Tally {
        let mut tally = begun();
        let lines: String = (0..count).map(|test| format!("test claim::{test} ... FAILED\n")).collect();
        let mut ended = ended("ratchet-store-memory", "tck", false, &(lines + &result(39, count, 0)));
        ended.program = crate::test::program::divisible("ratchet-store-memory", "tck");
        tally.add(ended);
        tally
    }

    #[test]
    fn a_test_that_passes_alone_is_unsteady_and_one_that_does_not_stays_failed() {
        let mut tally = failing(2);
        let [first, second] = tally.worth_another_try().try_into().unwrap();
        let passed = format!("test claim::0 ... ok\n{}", result(1, 0, 0));
        tally.add_another_try(first, &ended("ratchet-store-memory", "tck", true, &passed));
        let failed = format!("test claim::1 ... FAILED\n{}", result(0, 1, 0));
        tally.add_another_try(second, &ended("ratchet-store-memory", "tck", false, &failed));
        let summary = tally.summary(&packages(&["ratchet-store-memory"]));
        assert!(summary.contains("UNSTEADY ratchet-store-memory tck: claim::0"), "{summary}");
        assert!(summary.contains("FAILED ratchet-store-memory tck: claim::1"), "{summary}");
        assert!(summary.contains("store memory    40 passed, 1 failed, 0 skipped"), "{summary}");
        assert_eq!(tally.failures(&packages(&["ratchet-store-memory"])), ["1 tests failed"]);
    }

    #[test]
    fn a_second_try_that_runs_nothing_proves_nothing() {
        let mut tally = failing(1);
        let [test] = tally.worth_another_try().try_into().unwrap();
        tally.add_another_try(test, &ended("ratchet-store-memory", "tck", true, &result(0, 0, 0)));
        assert_eq!(names(&tally.failed_tests), ["ratchet-store-memory tck: claim::0"]);
    }

    #[test]
    fn many_failures_and_crashes_have_no_second_try() {
        assert_eq!(failing(MAX_UNSTEADY).worth_another_try().len(), MAX_UNSTEADY);
        assert_eq!(failing(MAX_UNSTEADY + 1).worth_another_try(), []);
        let mut tally = failing(1);
        tally.add(ended("ratchet-api", "ratchet_api", false, "error: process abort signal\n"));
        assert_eq!(tally.worth_another_try(), []);
    }

    #[test]
    fn the_words_of_a_failure_are_kept_and_those_of_successes_are_not() {
        let mut tally = Tally::default();
        let output = format!(
            "on purpose\ntest claim::a   ... FAILED\n\nfailures:\n---- claim::a ----\n1 is not 2\n{}",
            result(39, 1, 0)
        );
        tally.add(ended("ratchet-store-memory", "tck", false, &output));
        tally.add(ended("ratchet-store-postgres", "tck", true, &result(41, 0, 2)));
        assert_eq!(names(&tally.failed_tests), ["ratchet-store-memory tck: claim::a"]);
        let words = "---- ratchet-store-memory tck\nfailures:\n---- claim::a ----\n1 is not 2\n";
        assert!(tally.output.starts_with(words), "{}", tally.output);
        assert!(!tally.output.contains("on purpose") && !tally.output.contains("postgres"));
    }

    #[test]
    fn a_program_that_crashes_counts_as_a_failure() {
        for (success, output) in [
            (false, "error: process abort signal\n".to_owned()),
            // After its last test.
            (false, result(40, 0, 0)),
            (true, "says nothing\n".to_owned()),
        ] {
            let mut tally = begun();
            tally.add(ended("ratchet-store-memory", "tck", success, &output));
            let [told] = tally.crashes.as_slice() else { panic!("{:?}", tally.crashes) };
            assert!(told.starts_with("ratchet-store-memory tck: ended without a result"), "{output}");
            assert_eq!(tally.failures(&packages(&["ratchet-store-memory"])), ["1 tests failed"]);
        }
    }

    #[test]
    fn a_crash_names_the_tests_that_ran() {
        let mut tally = Tally::default();
        let mut crashed = ended("ratchet-store-memory", "tck", false, "running 2 tests\n");
        crashed.unfinished = vec!["claim::a".into(), "claim::b".into()];
        tally.add(crashed);
        let told = "ratchet-store-memory tck: ended without a result while it ran claim::a, claim::b \
                    (signal: 6 (SIGABRT))";
        assert_eq!(tally.crashes, [told]);
    }

    #[test]
    fn a_program_without_tests_is_no_failure() {
        let mut tally = Tally::default();
        tally.add(ended("ratchet-store-memory", "ratchet_store_memory", true, &result(0, 0, 0)));
        assert_eq!((tally.failed_tests, tally.crashes), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_store_whose_suite_runs_nothing_fails_the_run() {
        let failures = good().failures(&packages(&["ratchet-store-mongodb"]));
        assert_eq!(
            failures,
            [
                "the suite of the mongodb store ran no test",
                "the engine suite ran no test on the mongodb store"
            ]
        );
    }

    #[test]
    fn the_slowest_tests_are_named_first() {
        let mut tally = Tally::default();
        let mut slow = ended("ratchet-suite", "memory", true, &result(2, 0, 0));
        slow.durations =
            vec![("a".into(), Duration::from_millis(1500)), ("b".into(), Duration::from_secs(12))];
        tally.add(slow);
        let expected =
            "the slowest tests\n  12.0 s  ratchet-suite memory: b\n   1.5 s  ratchet-suite memory: a\n\n";
        assert!(tally.summary(&[]).starts_with(expected), "{}", tally.summary(&[]));
    }
}
