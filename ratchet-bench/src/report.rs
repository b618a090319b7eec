//! The report of a run: figures for people and programs, and the checks that decide whether it passes.

use serde::Serialize;
use serde_json::Value;

/// The figures and checks of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bench: &'static str,
    store: String,
    figures: Vec<Value>,
    checks: Vec<Check>,
}

/// A condition that must hold.
#[derive(Debug, Serialize)]
struct Check {
    /// The value found, and its limit.
    text: String,
    held: bool,
    /// Wrong answers always fail a run, slow ones only a full run: small sizes say little about speed.
    about: About,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum About {
    Correctness,
    Speed,
}

impl Report {
    pub(crate) fn new(bench: &'static str, store: &str) -> Self {
        Self { bench, store: store.to_owned(), figures: Vec::new(), checks: Vec::new() }
    }

    pub(crate) fn figure(&mut self, figure: &impl Serialize) -> serde_json::Result<()> {
        self.figures.push(serde_json::to_value(figure)?);
        Ok(())
    }

    pub(crate) fn check(&mut self, about: About, held: bool, text: impl Into<String>) {
        self.checks.push(Check { text: text.into(), held, about });
    }

    /// Prints one line per check.
    pub(crate) fn print_checks(&self) {
        println!();
        for Check { text, held, .. } in &self.checks {
            println!("{}: {text}: {}", self.bench, if *held { "ok" } else { "FAILED" });
        }
    }

    pub(crate) fn passed(&self, quick: bool) -> bool {
        let counts = |check: &&Check| !quick || check.about == About::Correctness;
        self.checks.iter().filter(counts).all(|check| check.held)
    }
}

/// Prints rows below their heading, numbers right-aligned.
pub(crate) fn print_table(heading: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  "));
    };
    println!();
    line(&mut heading.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

/// A number with this many decimals, or a dash.
pub(crate) fn cell(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
}

/// A number of jobs in short form: `1 M`, `10 k`.
pub(crate) fn short(count: usize) -> String {
    match count {
        1_000_000.. if count.is_multiple_of(1_000_000) => format!("{} M", count / 1_000_000),
        1_000.. if count.is_multiple_of(1_000) => format!("{} k", count / 1_000),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_fails_for_wrong_answers_only() {
        let mut report = Report::new("claim", "memory");
        report.check(About::Speed, false, "p50 1 M / 1 k = 3.0 (limit 2)");
        assert!(report.passed(true) && !report.passed(false));
        report.check(About::Correctness, false, "ids equal");
        assert!(!report.passed(true));
    }

    #[test]
    fn round_numbers_are_short() {
        assert_eq!([short(1), short(1_500), short(10_000), short(1_000_000)], ["1", "1500", "10 k", "1 M"]);
    }
}
