//! Progress lines on standard error: the server, the current step, and how far it is.
//!
//! One [`Progress`] covers all the work on one server. Its ticker repeats the current step whenever nothing was printed
//! for two seconds, so that no step can be silent, whether or not it reports anything by itself.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest time without a line.
const INTERVAL: Duration = Duration::from_secs(2);

type Detail = Arc<dyn Fn() -> String + Send + Sync>;

/// The progress of the work on one server.
pub(crate) struct Progress {
    label: String,
    begun: Instant,
    interval: Duration,
    print: Box<dyn Fn(String) + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    step: Step,
    printed: Instant,
}

#[derive(Clone)]
struct Step {
    name: String,
    since: Instant,
    /// The detail of the step; without it the ticker shows how long the step has taken.
    detail: Option<Detail>,
}

impl Step {
    fn new(name: impl Into<String>, detail: Option<Detail>) -> Self {
        Self { name: name.into(), since: Instant::now(), detail }
    }

    fn report(&self) -> String {
        match &self.detail {
            Some(detail) => format!("{}: {}", self.name, detail()),
            None => format!("{}: {} s", self.name, self.since.elapsed().as_secs()),
        }
    }
}

impl Progress {
    /// Runs `work` with a ticker. The first step is not announced: it is usually over at once.
    pub(crate) fn ticking<T>(label: &str, first_step: &str, work: impl FnOnce(&Self) -> T) -> T {
        // On standard error, so that standard output has only results.
        Self::new(label, first_step, INTERVAL, Box::new(|line| eprintln!("{line}"))).run(work)
    }

    fn new(
        label: &str,
        first_step: &str,
        interval: Duration,
        print: Box<dyn Fn(String) + Send + Sync>,
    ) -> Self {
        let (label, begun) = (label.to_owned(), Instant::now());
        let state = Mutex::new(State { step: Step::new(first_step, None), printed: begun });
        Self { label, begun, interval, print, state }
    }

    fn run<T>(self, work: impl FnOnce(&Self) -> T) -> T {
        thread::scope(|scope| {
            let (end, ended) = mpsc::channel();
            let progress = &self;
            scope.spawn(move || progress.tick_until(&ended));
            let value = work(progress);
            drop(end);
            value
        })
    }

    /// Announces a step and runs it.
    pub(crate) fn step<T>(&self, name: impl Into<String>, work: impl FnOnce() -> T) -> T {
        self.enter(Step::new(name, None), work)
    }

    /// Announces a step and runs it; `detail` says how far it is.
    pub(crate) fn measured_step<T>(
        &self,
        name: impl Into<String>,
        detail: impl Fn() -> String + Send + Sync + 'static,
        work: impl FnOnce() -> T,
    ) -> T {
        self.enter(Step::new(name, Some(Arc::new(detail))), work)
    }

    /// Prints a line about something that takes no time.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        self.state().printed = Instant::now();
        let seconds = self.begun.elapsed().as_secs_f64();
        (self.print)(format!("{:<9} {seconds:>6.1} s  {}", self.label, text.as_ref()));
    }

    /// How long this server has been worked on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn enter<T>(&self, step: Step, work: impl FnOnce() -> T) -> T {
        self.say(&step.name);
        let outer = std::mem::replace(&mut self.state().step, step);
        let value = work();
        self.state().step = outer;
        value
    }

    fn tick_until(&self, ended: &Receiver<()>) {
        let mut wait = self.interval;
        while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let silent = self.state().printed.elapsed();
            wait = match self.interval.checked_sub(silent) {
                Some(rest) if !rest.is_zero() => rest,
                _ => {
                    // The lock is released before the detail is computed, which may read a directory.
                    let step = self.state().step.clone();
                    self.say(step.report());
                    self.interval
                }
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of a download.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Total {
    /// The size is not known beforehand.
    Unknown,
    /// A known number of files and bytes.
    Known { files: usize, bytes: u64 },
}

impl Total {
    /// The size of what has arrived in `directory`, as text.
    pub(crate) fn arrived_in(self, directory: &Path) -> String {
        self.progress(&Arrived::in_directory(directory))
    }

    fn progress(self, arrived: &Arrived) -> String {
        match self {
            Self::Unknown => format!("{} so far", megabytes(arrived.bytes)),
            Self::Known { files, bytes } => {
                let percent = (arrived.bytes * 100).checked_div(bytes).unwrap_or(0).min(100);
                format!(
                    "{} of {files} files, {} of {} ({percent} %)",
                    arrived.files.min(files),
                    megabytes(arrived.bytes),
                    megabytes(bytes),
                )
            }
        }
    }
}

#[derive(Debug, Default)]
struct Arrived {
    files: usize,
    bytes: u64,
}

impl Arrived {
    /// Partial files are in a subdirectory and count by size only.
    fn in_directory(directory: &Path) -> Self {
        let mut arrived = Self::default();
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                arrived.bytes += Self::in_directory(&entry.path()).bytes;
            } else if meta.len() > 0 {
                arrived.files += 1;
                arrived.bytes += meta.len();
            }
        }
        arrived
    }
}

pub(crate) fn megabytes(bytes: u64) -> String {
    let value = bytes as f64 / 1_000_000.0;
    format!("{value:.1} MB")
}

/// The end of a log file, for showing with an error.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let end = all[all.len().saturating_sub(lines)..].join("\n    ");
    format!("last lines of {}:\n    {end}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(1);

    /// Runs `work` with the lines that are printed meanwhile, without their label and time.
    fn watch(interval: Duration, work: impl FnOnce(&Progress, &Receiver<String>)) {
        let (lines, printed) = mpsc::channel();
        let print = move |line: String| {
            let text = line.split_once(" s  ").expect("a label and a time").1.to_owned();
            // Lines that come after the test are not read.
            let _ = lines.send(text);
        };
        Progress::new("mysql", "checking", interval, Box::new(print))
            .run(|progress| work(progress, &printed));
    }

    #[test]
    fn a_step_is_announced_and_repeated_for_as_long_as_it_takes() {
        watch(FAST, |progress, printed| {
            progress.step("initialising", || {
                let mut lines = printed.iter().filter(|line| line.starts_with("initialising"));
                assert_eq!(lines.next().as_deref(), Some("initialising"));
                assert_eq!(lines.next().as_deref(), Some("initialising: 0 s"));
                assert_eq!(lines.next().as_deref(), Some("initialising: 0 s"));
            });
        });
    }

    #[test]
    fn a_measured_step_repeats_how_far_it_is() {
        watch(FAST, |progress, printed| {
            progress.measured_step(
                "unpacking",
                || "3 of 57".into(),
                || {
                    assert!(printed.iter().any(|line| line == "unpacking: 3 of 57"));
                },
            );
        });
    }

    #[test]
    fn the_ticker_returns_to_the_outer_step() {
        watch(FAST, |progress, printed| {
            progress.step("outer", || {
                progress.step("inner", || assert!(printed.iter().any(|line| line == "inner: 0 s")));
                assert!(printed.iter().any(|line| line == "outer: 0 s"));
            });
            // Work without a step is shown as well.
            assert!(printed.iter().any(|line| line == "checking: 0 s"));
        });
    }

    #[test]
    fn quick_work_prints_nothing_but_its_announcements() {
        watch(Duration::MAX, |progress, printed| {
            assert_eq!(progress.step("starting", || 7), 7);
            progress.say("answers");
            assert_eq!(printed.try_iter().collect::<Vec<_>>(), ["starting", "answers"]);
        });
    }

    #[test]
    fn a_download_tells_files_bytes_and_percent() {
        let total = Total::Known { files: 57, bytes: 58_000_000 };
        let arrived = Arrived { files: 12, bytes: 14_500_000 };
        assert_eq!(total.progress(&arrived), "12 of 57 files, 14.5 MB of 58.0 MB (25 %)");
        let nothing = Total::Known { files: 0, bytes: 0 };
        assert_eq!(nothing.progress(&arrived), "0 of 0 files, 14.5 MB of 0.0 MB (0 %)");
        assert_eq!(Total::Unknown.progress(&arrived), "14.5 MB so far");
    }
}
