//! Process ids that are not confused with later processes of the same number.

use std::{fs, path::Path, process::Command};

use serde::{Deserialize, Serialize};

/// A process id with the start time of the process, because the system reuses process ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    born: String,
}

impl ProcessId {
    /// The process that has this number now, if there is one.
    #[cfg(any(test, feature = "start"))]
    pub(crate) fn of(pid: u32) -> Option<Self> {
        start_time(pid).map(|born| Self { pid, born })
    }

    /// Whether this very process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        start_time(self.pid).as_ref() == Some(&self.born)
    }

    /// A process with the number of this one and another start time.
    #[cfg(test)]
    pub(crate) fn impostor(&self) -> Self {
        Self { pid: self.pid, born: "another time".into() }
    }
}

/// The start time of a process, unique for one process id across reboots. A zombie counts as ended.
fn start_time(pid: u32) -> Option<String> {
    if !Path::new("/proc/self/stat").exists() {
        // No /proc on this system (macOS): `ps` tells the time, to the second.
        let out = Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        return (!text.is_empty()).then_some(text);
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = start_ticks(&stat)?;
    Some(format!("{} {ticks}", boot_id()))
}

/// The start time in a line of `/proc/<pid>/stat`, unless the process has ended.
fn start_ticks(stat: &str) -> Option<&str> {
    // The name in parentheses may contain spaces and parentheses itself: the last one counts.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

/// An id of the current boot of the machine; empty on a system without `/proc`.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(start_ticks(&format!("17 (mongod) {fields}")), Some("4242"));
        assert_eq!(start_ticks(&format!("17 (a ) b) {fields}")), Some("4242"));
    }

    #[test]
    fn a_zombie_counts_as_ended() {
        let fields = "Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(start_ticks(&format!("17 (mongod) {fields}")), None);
    }

    #[test]
    fn another_process_with_the_same_number_is_not_alive() {
        let me = ProcessId::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(!me.impostor().is_alive());
    }
}
