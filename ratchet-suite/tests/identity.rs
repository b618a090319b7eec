//! The default node names against their conformance suite, in real processes.
//!
//! A process that finds the variable runs no test: it prints its name, and lives until its input ends.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;

use ratchet_api::spi::NodeIdentityProvider;
use ratchet_core::defaults::DefaultNodeIdentity;
use ratchet_tck::identity::{IdentityHarness, IdentitySuite};

const VARIABLE: &str = "RATCHET_TEST_IDENTITY";

/// Other nodes, which live as long as this process; otherwise two of them could have the same process id.
#[derive(Default)]
struct Processes(Mutex<HashMap<usize, (Child, String)>>);

impl IdentityHarness for Processes {
    fn node(&self, node: usize) -> Box<dyn NodeIdentityProvider> {
        if node == 0 {
            return Box::new(DefaultNodeIdentity::new());
        }
        let mut processes = self.0.lock().expect("no holder panics");
        let (_, name) = processes.entry(node).or_insert_with(start);
        Box::new(DefaultNodeIdentity::fixed(name.as_str()).expect("a name"))
    }
}

fn start() -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env(VARIABLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut name = String::new();
    let said = BufReader::new(child.stdout.take().expect("its output")).read_line(&mut name);
    said.expect("it tells its name");
    (child, name.trim_end().to_owned())
}

fn main() -> ExitCode {
    if std::env::var_os(VARIABLE).is_some() {
        println!("{}", DefaultNodeIdentity::new().node_id());
        // Waits until the parent process is gone.
        let _ = std::io::stdin().read(&mut [0]);
        return ExitCode::SUCCESS;
    }
    IdentitySuite::new(Processes::default()).main()
}
