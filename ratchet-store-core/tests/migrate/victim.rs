//! A process that migrates in order to be killed.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::place::{Product, TestDatabase};

const VARIABLE: &str = "RATCHET_TEST_VICTIM";
/// The separator between the parts of an order. No name and no script contains it.
const MARK: char = '\u{1f}';

/// The order of the process: where and what to migrate.
pub(crate) struct Victim {
    place: TestDatabase,
    files: Vec<(String, &'static str)>,
}

impl Victim {
    /// Reads what [`start`] wrote: product, name, file, and scripts.
    pub(crate) fn from_env() -> Option<Self> {
        let order = std::env::var(VARIABLE).ok()?;
        let mut parts = order.split(MARK);
        let mut next = || parts.next().expect("a whole order").to_owned();
        let (product, name, file) = (next(), next(), next());
        let product = Product::ALL.into_iter().find(|known| known.name() == product).expect("a product");
        let scripts: Vec<&str> = parts.collect();
        let files = scripts.chunks(2).map(|script| (script[0].to_owned(), &*script[1].to_owned().leak()));
        Some(Self { place: TestDatabase::at(product, name, file.into()), files: files.collect() })
    }

    /// Migrates and prints its progress, without ever giving way to others.
    pub(crate) fn migrate(self) -> ! {
        let files: Vec<(&str, &'static str)> =
            self.files.iter().map(|(name, sql)| (name.as_str(), *sql)).collect();
        let for_ever = Duration::from_secs(600);
        let migrator = self.place.migrator(&files).table_wait(for_ever).lock_wait(for_ever);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tell = |line: String| {
            println!("{line}");
            std::io::stdout().flush().expect("someone who listens");
        };
        let outcome = runtime.block_on(migrator.migrate(|progress| tell(progress.to_string())));
        tell(format!("survived: {outcome:?}"));
        std::process::exit(1)
    }
}

/// A running victim.
pub(crate) struct Prey {
    child: Child,
    told: Lines<BufReader<ChildStdout>>,
}

/// Starts a process that applies these scripts.
pub(crate) fn start(place: &TestDatabase, files: &[(&str, &'static str)]) -> Prey {
    start_with(place, files, &[])
}

/// Starts a process that applies these scripts, in another environment.
pub(crate) fn start_with(
    place: &TestDatabase,
    files: &[(&str, &'static str)],
    environment: &[(&str, String)],
) -> Prey {
    let file = place.file().display().to_string();
    let mut order = vec![place.product.name(), place.name.as_str(), file.as_str()];
    order.extend(files.iter().flat_map(|(name, sql)| [*name, *sql]));
    let order = order.join(&MARK.to_string());
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env(VARIABLE, order)
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let told = BufReader::new(child.stdout.take().expect("its output")).lines();
    Prey { child, told }
}

impl Prey {
    /// Waits until it prints this line.
    pub(crate) fn hear(&mut self, line: &str) {
        let mut heard = Vec::new();
        for told in &mut self.told {
            let told = told.expect("text");
            if told == line {
                return;
            }
            heard.push(told);
        }
        panic!("the process ended without `{line}`: {heard:?}");
    }

    /// Kills it with SIGKILL, which is like a power failure.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a process that lives");
        let status = self.child.wait().expect("its end");
        assert_eq!(status.code(), None, "it ended by itself: {status}");
    }
}
