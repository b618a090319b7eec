//! Accounts that servers run as.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

/// An account other than our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// Looks an account up by name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let ask = |flag: &str| -> Option<u32> {
            let out = Command::new("id").args([flag, name]).stderr(Stdio::null()).output().ok()?;
            String::from_utf8_lossy(&out.stdout).trim().parse().ok()
        };
        Some(Self { uid: ask("-u")?, gid: ask("-g")? })
    }

    /// Makes this account the owner of a directory.
    pub(crate) fn own(&self, directory: &Path) -> Result<()> {
        chown(directory, Some(self.uid), Some(self.gid))
            .with_context(|| format!("cannot change the owner of {}", directory.display()))
    }

    /// Whether this account may pass through every existing directory above `path`.
    pub(crate) fn can_reach(&self, path: &Path) -> bool {
        path.ancestors().skip(1).filter_map(|directory| fs::metadata(directory).ok()).all(|meta| {
            let mode = meta.mode();
            (mode & 0o001 != 0)
                || (meta.uid() == self.uid && mode & 0o100 != 0)
                || (meta.gid() == self.gid && mode & 0o010 != 0)
        })
    }
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    // The owner of our own process, without a foreign call.
    match fs::metadata("/proc/self") {
        Ok(meta) => meta.uid() == 0,
        Err(_) => Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n"),
    }
}
