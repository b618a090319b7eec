//! The output of test programs, read line by line.

/// The results of the tests of one run, by name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<String>,
    pub(crate) ignored: Vec<String>,
}

impl Results {
    /// Reads a complete output.
    pub(crate) fn of(output: &str) -> Self {
        let mut results = Self::default();
        output.lines().for_each(|line| results.line(line));
        results
    }

    /// Records a line `test name ... ok`; ignores other lines.
    pub(crate) fn line(&mut self, line: &str) {
        match result(line) {
            Some((name, Word::Passed)) => self.passed.push(name.to_owned()),
            Some((name, Word::Failed)) => self.failed.push(name.to_owned()),
            Some((name, Word::Ignored)) => self.ignored.push(name.to_owned()),
            None => {}
        }
    }

    /// Adds the results of another run.
    pub(crate) fn extend(&mut self, other: Self) {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.ignored.extend(other.ignored);
    }
}

/// The result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Passed,
    Failed,
    Ignored,
}

/// The test named in a line `test name ... ok`, and its result.
pub(crate) fn result(line: &str) -> Option<(&str, Word)> {
    let (name, word) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let word = match word.split([' ', ',']).next()? {
        "ok" => Word::Passed,
        "FAILED" => Word::Failed,
        "ignored" => Word::Ignored,
        _ => return None,
    };
    Some((name.trim_end().trim_end_matches(" - should panic"), word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_test_programs_are_understood() {
        let output = "\
running 5 tests
test claim::a_job                  ... ok
test lock::second_holder_is_refused ... FAILED
test pause::later ... ignored
test slow ... ignored, needs a server
test id::tests::bad - should panic ... ok
test hanging ...
test result: FAILED. 2 passed; 1 failed; 2 ignored
";
        let results = Results::of(output);
        assert_eq!(results.passed, ["claim::a_job", "id::tests::bad"]);
        assert_eq!(results.failed, ["lock::second_holder_is_refused"]);
        assert_eq!(results.ignored, ["pause::later", "slow"]);
    }
}
