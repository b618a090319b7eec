//! A process that migrates in order to be killed.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::place::{Place, Product};

const VARIABLE: &str = "RATCHET_TEST_VICTIM";

/// What the process is to do.
pub(crate) struct Victim {
    place: Place,
    files: Vec<(String, &'static str)>,
}

impl Victim {
    /// Reads what [`start`] wrote: product, name, file, and scripts, each in a line.
    pub(crate) fn from_env() -> Option<Self> {
        let order = std::env::var(VARIABLE).ok()?;
        let mut lines = order.lines();
        let mut next = || lines.next().expect("a whole order").to_owned();
        let (product, name, file) = (next(), next(), next());
        let product = Product::ALL.into_iter().find(|known| known.name() == product).expect("a product");
        let scripts: Vec<&str> = lines.collect();
        let files = scripts.chunks(2).map(|script| (script[0].to_owned(), &*script[1].to_owned().leak()));
        Some(Self { place: Place::at(product, name, file.into()), files: files.collect() })
    }

    /// Migrates, telling its progress, without ever giving way to others.
    pub(crate) fn migrate(self) -> ! {
        let files: Vec<(&str, &'static str)> =
            self.files.iter().map(|(name, sql)| (name.as_str(), *sql)).collect();
        let migrator = self.place.migrator(&files).table_wait(Duration::from_secs(600));
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

/// Starts a process that applies these scripts. Their texts have one line each.
pub(crate) fn start(place: &Place, files: &[(&str, &'static str)]) -> Prey {
    let mut order = format!("{}\n{}\n{}", place.product.name(), place.name, place.file().display());
    for (name, sql) in files {
        assert!(!sql.contains('\n'));
        order += &format!("\n{name}\n{sql}");
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env(VARIABLE, order)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let told = BufReader::new(child.stdout.take().expect("its output")).lines();
    Prey { child, told }
}

impl Prey {
    /// Waits until it tells this.
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

    /// Ends it as a power failure would: SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a process that lives");
        let status = self.child.wait().expect("its end");
        assert_eq!(status.code(), None, "it ended by itself: {status}");
    }
}
