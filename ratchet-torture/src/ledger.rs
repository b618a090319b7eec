//! The ledgers: append-only files outside of the database, one for each process. A line is one write, so that a killed
//! process leaves whole lines.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ratchet_api::{Fence, JobId};

/// Milliseconds since the epoch, by the clock of this machine.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// An act of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Start,
    /// The body was told to stop.
    Told,
    End,
}

/// The writer of one process's ledger.
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(file: &Path) -> Result<Self> {
        let opened = OpenOptions::new().create(true).append(true).open(file);
        Ok(Self(opened.with_context(|| format!("cannot write {}", file.display()))?))
    }

    /// Appends a line. A body must not act if this fails.
    pub(crate) fn write(&self, act: Act, job: JobId, fence: Fence) -> std::io::Result<()> {
        let line = format!("{act:?} {} {} {}\n", job.as_uuid(), fence.version(), now());
        (&self.0).write_all(line.as_bytes())
    }
}

/// A run of a body, as its process recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) job: JobId,
    pub(crate) fence: i64,
    /// The name of the process's file.
    pub(crate) process: String,
    pub(crate) started: i64,
    pub(crate) told: Option<i64>,
    pub(crate) ended: Option<i64>,
}

/// Reads every ledger in a folder.
pub(crate) fn read_all(folder: &Path) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ledger") {
            let process = path.file_stem().unwrap_or_default().to_string_lossy();
            runs.extend(read(&process, &std::fs::read_to_string(&path)?)?);
        }
    }
    runs.sort_by_key(|run| run.started);
    Ok(runs)
}

/// Reads the ledger of one process. A last line that was cut off was never written.
fn read(process: &str, text: &str) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open = HashMap::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [act, job, fence, at] = words[..] else { anyhow::bail!("{process}: a strange line: {line}") };
        let (job, fence, at) = (JobId::from_uuid(job.parse()?), fence.parse()?, at.parse()?);
        if act == "Start" {
            open.insert((job, fence), runs.len());
            let process = process.to_owned();
            runs.push(Run { job, fence, process, started: at, told: None, ended: None });
            continue;
        }
        let Some(run) = open.get(&(job, fence)).map(|place| &mut runs[*place]) else {
            anyhow::bail!("{process}: an end without a start: {line}");
        };
        *(if act == "Told" { &mut run.told } else { &mut run.ended }) = Some(at);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_torn_line_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a-1.ledger");
        let (job, fence) = (JobId::generate(), Fence::from_version(7));
        let ledger = Ledger::open(&file).expect("it opens");
        for act in [Act::Start, Act::Told, Act::End] {
            ledger.write(act, job, fence).expect("it is written");
        }
        (&ledger.0).write_all(b"Start 0193").expect("it is written");
        let runs = read_all(folder.path()).expect("it is read");
        assert_eq!(runs.len(), 1);
        assert_eq!((runs[0].job, runs[0].fence, runs[0].process.as_str()), (job, 7, "a-1"));
        assert!(runs[0].told.is_some() && runs[0].ended.is_some());
    }

    #[test]
    fn an_end_needs_a_start() {
        let line = format!("End {} 1 5\n", JobId::generate().as_uuid());
        assert!(read("a", &line).is_err());
    }
}
