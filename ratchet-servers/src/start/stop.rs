//! Ending exactly the processes that we started.

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::process_id::ProcessId;

/// How long a server may take for its shutdown before it is killed.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

impl ProcessId {
    /// Sends a signal, waits for the end of the process, and kills it if it does not end.
    ///
    /// Returns whether the signal was enough.
    pub(super) fn stop(&self, signal: &str) -> Result<bool> {
        self.signal(signal)?;
        if self.ends_within(SHUTDOWN_LIMIT) {
            return Ok(true);
        }
        self.signal("KILL")?;
        if self.ends_within(SHUTDOWN_LIMIT) {
            return Ok(false);
        }
        bail!("process {} does not end", self.pid)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        // The shell's own `kill`: not every machine has the program.
        let status = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\" 2>/dev/null", "sh", signal])
            .arg(self.pid.to_string())
            .stdin(Stdio::null())
            .status()
            .context("cannot run sh")?;
        if !status.success() && self.is_alive() {
            bail!("cannot send SIG{signal} to process {}", self.pid);
        }
        Ok(())
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let begun = Instant::now();
        while self.is_alive() {
            if begun.elapsed() > limit {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::command_line::CommandLine;

    #[test]
    fn another_process_with_the_same_number_gets_no_signal() {
        let me = ProcessId::of(std::process::id()).unwrap();
        // If the number alone were checked, this would end the test run.
        assert!(me.impostor().stop("TERM").unwrap());
    }

    #[test]
    fn a_process_is_stopped_by_its_signal() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = CommandLine::new("sleep").arg("600").detach(&directory.path().join("log")).unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        assert!(process.is_alive());
        assert!(process.stop("TERM").unwrap());
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
