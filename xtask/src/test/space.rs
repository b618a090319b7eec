//! The check for free disk space.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};

/// The space that tests and servers need: 1.5 GB were observed.
const NEEDED_KIB: u64 = 3 * 1024 * 1024;

/// Refuses to start on a nearly full disk: hundreds of tests would fail, none of them for a reason of its own.
pub(super) fn check(workspace: &Path) -> Result<()> {
    for folder in [workspace, &std::env::temp_dir()] {
        let out = Command::new("df").arg("-Pk").arg(folder).output().context("cannot run df")?;
        let free = available(&String::from_utf8_lossy(&out.stdout)).context("df names no free space")?;
        let gib = |kib: u64| kib / (1024 * 1024);
        ensure!(
            free >= NEEDED_KIB,
            "{} GiB free on the disk of {}, the tests need {}",
            gib(free),
            folder.display(),
            gib(NEEDED_KIB)
        );
    }
    Ok(())
}

/// Free KiB, from the output of `df -Pk` for one folder.
fn available(table: &str) -> Option<u64> {
    table.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_the_fourth_column() {
        let table = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 263174212 33801234 61865344 36% /\n";
        assert_eq!(available(table), Some(61_865_344));
        assert_eq!(available("Filesystem\n"), None);
    }
}
