//! The measurements of rounds, and the comparison of one way with another that took turns with it.

use std::time::Duration;

use serde::Serialize;

use crate::report::{cell, print_table};
use crate::stats::{median, per_second, quantile};
use crate::usage::Usage;

/// The measurement of one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) jobs: usize,
    pub(crate) took: Duration,
    /// The total time of all bodies.
    pub(crate) busy: Duration,
    pub(crate) used: Usage,
    pub(crate) peak_mib: Option<f64>,
}

impl Round {
    pub(crate) fn speed(&self) -> f64 {
        per_second(self.jobs, self.took)
    }
}

/// The medians of one side's rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Speeds {
    pub(crate) jobs_per_second: f64,
    /// The share of the slots' time that bodies took.
    pub(crate) busy: f64,
    pub(crate) worker_cpu_us: Option<f64>,
    pub(crate) server_cpu_us: Option<f64>,
    pub(crate) jobs_per_commit: Option<f64>,
    pub(crate) log_bytes: Option<f64>,
    pub(crate) peak_mib: Option<f64>,
}

impl Speeds {
    pub(crate) fn of(rounds: &[Round], slots: u32) -> Self {
        let each = |part: &dyn Fn(&Round) -> f64| median(rounds.iter().map(part));
        let some = |part: &dyn Fn(&Round) -> Option<f64>| {
            rounds.iter().map(part).collect::<Option<Vec<f64>>>().map(median)
        };
        let micros =
            |round: &Round, time: Option<Duration>| Some(time?.as_secs_f64() * 1e6 / round.jobs as f64);
        Self {
            jobs_per_second: each(&Round::speed),
            busy: each(&|round| round.busy.div_duration_f64(round.took * slots)),
            worker_cpu_us: some(&|round| micros(round, round.used.client_cpu)),
            server_cpu_us: some(&|round| micros(round, round.used.server_cpu)),
            jobs_per_commit: some(&|round| Some(round.jobs as f64 / round.used.commits? as f64)),
            log_bytes: some(&|round| Some(round.used.log_bytes? as f64 / round.jobs as f64)),
            peak_mib: some(&|round| round.peak_mib),
        }
    }

    pub(crate) fn cells(&self) -> [String; 7] {
        let whole = |number: Option<f64>| cell(number, 0);
        [
            format!("{:.0}", self.jobs_per_second),
            format!("{:.0} %", 100.0 * self.busy),
            cell(self.worker_cpu_us, 1),
            cell(self.server_cpu_us, 1),
            whole(self.jobs_per_commit),
            whole(self.log_bytes),
            whole(self.peak_mib),
        ]
    }
}

/// The comparison of two ways, round by round.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// A description of the jobs.
    case: String,
    nodes: usize,
    measured: Speeds,
    beside: Speeds,
    /// Measured over reference: the median of the rounds, the lowest and the highest.
    pub(crate) ratio: f64,
    lowest: f64,
    highest: f64,
}

impl Comparison {
    /// Compares rounds, given as (measured, reference), in each of which at most `at_once` bodies could run at a time.
    pub(crate) fn of(case: &str, nodes: usize, rounds: &[(Round, Round)], at_once: u32) -> Self {
        let (measured, beside): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
        let ratios: Vec<f64> =
            rounds.iter().map(|(measured, beside)| measured.speed() / beside.speed()).collect();
        let at = |share| quantile(&ratios, share);
        Self {
            case: case.to_owned(),
            nodes,
            measured: Speeds::of(&measured, at_once),
            beside: Speeds::of(&beside, at_once),
            ratio: at(0.5),
            lowest: at(0.0),
            highest: at(1.0),
        }
    }
}

/// Prints comparisons, two lines each.
pub(crate) fn print_comparisons(comparisons: &[Comparison], beside: &str) {
    const HEADING: [&str; 11] = [
        "case",
        "nodes",
        "jobs/s",
        "ratio",
        "lowest - highest",
        "busy",
        "worker µs",
        "server µs",
        "jobs/commit",
        "log B",
        "peak MiB",
    ];
    let line = |case: &str, nodes: usize, ratios: [String; 2], speeds: &Speeds| {
        let [speed, rest @ ..] = speeds.cells();
        [case.to_owned(), nodes.to_string(), speed].into_iter().chain(ratios).chain(rest).collect()
    };
    let both = |of: &Comparison| {
        let spread = format!("{:.2} - {:.2}", of.lowest, of.highest);
        let ratios = [cell(Some(of.ratio), 2), spread];
        [
            line(&of.case, of.nodes, ratios, &of.measured),
            line(beside, of.nodes, [String::new(), String::new()], &of.beside),
        ]
    };
    let rows: Vec<Vec<String>> = comparisons.iter().flat_map(both).collect();
    print_table(&HEADING, &rows);
}
