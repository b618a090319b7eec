//! Resource usage: processor time of client and server, memory, commits, and bytes of the server's log.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::store::Bench;

/// Linux counts in hundredths of a second on every machine that it supports today.
const TICK: Duration = Duration::from_millis(10);

/// Counters that only grow. `None` where they are not available.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) client_cpu: Option<Duration>,
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) commits: Option<u64>,
}

impl Usage {
    /// The usage so far.
    pub(crate) async fn so_far(bench: &dyn Bench) -> Result<Self> {
        let (log_bytes, commits) = (bench.log_bytes().await?, bench.commits().await?);
        Ok(Self { client_cpu: own_cpu(), server_cpu: bench.server_cpu(), log_bytes, commits })
    }

    /// The usage since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let time = |now: Option<Duration>, then| Some(now?.saturating_sub(then?));
        let count = |now: Option<u64>, then| Some(now?.saturating_sub(then?));
        Self {
            client_cpu: time(self.client_cpu, earlier.client_cpu),
            server_cpu: time(self.server_cpu, earlier.server_cpu),
            log_bytes: count(self.log_bytes, earlier.log_bytes),
            commits: count(self.commits, earlier.commits),
        }
    }
}

/// The processor time of this process.
fn own_cpu() -> Option<Duration> {
    ProcessTimes::read("self").map(|times| times.own)
}

/// The processor time of a server that is one process.
pub(crate) fn process_cpu(process: u32) -> Option<Duration> {
    ProcessTimes::read(&process.to_string()).map(|times| times.own)
}

/// Resets the peak of this process's memory.
pub(crate) fn forget_peak() {
    // Where this is not possible, the peak is that of the whole run.
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// The peak of this process's memory since the reset, in MiB.
pub(crate) fn peak_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kib| kib / 1024.0)
}

/// The total bytes that this process has written.
pub(crate) fn own_writes() -> Option<u64> {
    let counts = fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

/// The processor time of a server whose workers are children of one process, one of which is `worker`. Children that
/// have ended are included.
pub(crate) fn family_cpu(worker: u32) -> Option<Duration> {
    let parent = ProcessTimes::read(&worker.to_string())?.parent;
    let head = ProcessTimes::read(&parent.to_string())?;
    let living = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let process = entry.file_name().into_string().ok()?;
        let times = ProcessTimes::read(&process)?;
        (times.parent == parent).then(|| finer(&process).unwrap_or(times.own))
    });
    Some(head.own + head.ended_children + living.sum::<Duration>())
}

/// The processor time of a process with one thread, in nanoseconds, where the kernel counts them.
fn finer(process: &str) -> Option<Duration> {
    let counts = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    counts.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// A line of `/proc/<pid>/stat`.
struct ProcessTimes {
    parent: u32,
    own: Duration,
    ended_children: Duration,
}

impl ProcessTimes {
    fn read(process: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The second field is a name in parentheses that may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok().map(|ticks| TICK * ticks);
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: ticks(11)? + ticks(12)?,
            ended_children: ticks(13)? + ticks(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let times =
            ProcessTimes::parse("7 (a) (b c) S 3 7 7 0 -1 4194560 1 2 3 4 150 50 10 20 20 0 1 0 99 1 1")
                .unwrap();
        assert_eq!(times.parent, 3);
        assert_eq!(times.own, Duration::from_secs(2));
        assert_eq!(times.ended_children, Duration::from_millis(300));
    }
}
