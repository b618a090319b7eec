//! Lines on screen: what happens now, for which server, and how far it is.

use std::{
    fs,
    path::Path,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

/// Prefixes each line with a server's name. Lines go to standard error, so that standard output
/// holds nothing but results.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    label: String,
    begun: Instant,
}

impl Screen {
    pub(crate) fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), begun: Instant::now() }
    }

    pub(crate) fn say(&self, what: impl AsRef<str>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        eprintln!("{:<9} {:>6.1} s  {}", self.label, seconds, what.as_ref());
    }

    /// How long this server has been worked on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits for a download, telling every two seconds how much of it has arrived in `folder`.
    pub(crate) fn watch(&self, child: &mut Child, folder: &Path, total: Total) -> Result<bool> {
        const STEP: Duration = Duration::from_millis(50);
        const TELL_EVERY: Duration = Duration::from_secs(2);
        let mut told = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status.success());
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                self.say(total.progress(&Arrived::in_folder(folder)));
            }
            thread::sleep(STEP);
        }
    }
}

/// What a download will bring.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Total {
    /// Not known beforehand.
    Unknown,
    /// A known number of files and bytes.
    Known { files: usize, bytes: u64 },
}

impl Total {
    fn progress(self, arrived: &Arrived) -> String {
        match self {
            Self::Unknown => format!("fetching: {} so far", megabytes(arrived.bytes)),
            Self::Known { files, bytes } => {
                let percent = (arrived.bytes * 100).checked_div(bytes).unwrap_or(0).min(100);
                format!(
                    "fetching: {} of {files} files, {} of {} ({percent} %)",
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
    /// Files that are still arriving sit in a folder below and count by size only.
    fn in_folder(folder: &Path) -> Self {
        let mut arrived = Self::default();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                arrived.bytes += Self::in_folder(&entry.path()).bytes;
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

    #[test]
    fn progress_tells_files_bytes_and_percent() {
        let total = Total::Known { files: 57, bytes: 58_000_000 };
        let arrived = Arrived { files: 12, bytes: 14_500_000 };
        assert_eq!(total.progress(&arrived), "fetching: 12 of 57 files, 14.5 MB of 58.0 MB (25 %)");
        let nothing = Total::Known { files: 0, bytes: 0 };
        assert_eq!(nothing.progress(&arrived), "fetching: 0 of 0 files, 14.5 MB of 0.0 MB (0 %)");
    }
}
