//! What work costs: processor time of client and server, and bytes of the server's log.

use std::fs;
use std::time::Duration;

/// Linux counts in hundredths of a second on every machine that it supports today.
const TICK: Duration = Duration::from_millis(10);

/// Counters that only grow. `None` where they cannot be had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) client_cpu: Option<Duration>,
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) log_bytes: Option<u64>,
}

impl Usage {
    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let time = |now: Option<Duration>, then| Some(now?.saturating_sub(then?));
        Self {
            client_cpu: time(self.client_cpu, earlier.client_cpu),
            server_cpu: time(self.server_cpu, earlier.server_cpu),
            log_bytes: self.log_bytes.zip(earlier.log_bytes).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// The processor time of this process.
pub(crate) fn own_cpu() -> Option<Duration> {
    ProcessTimes::read("self").map(|times| times.own)
}

/// All bytes that this process has written.
pub(crate) fn own_writes() -> Option<u64> {
    let counts = fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

/// The processor time of a server whose workers are children of one process, one of which is `worker`.
/// Children that have ended count as well.
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
