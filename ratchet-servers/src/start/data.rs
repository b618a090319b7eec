//! Data directories that outlive a stop of their server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cache::remove_directory;
use crate::process_id::boot_id;

/// The description of a complete data directory, kept beside it. A directory without a description, or with another
/// one, is made anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DataDirectory {
    #[serde(rename = "folder")]
    pub(super) path: PathBuf,
    version: String,
    durable: bool,
    boot: String,
}

impl DataDirectory {
    const FILE: &str = "data.json";

    pub(super) fn new(path: PathBuf, version: &str, durable: bool) -> Self {
        // A server without durable settings did not sync its files: they are useless after a crash of the machine.
        let boot = if durable { String::new() } else { boot_id() };
        Self { path, version: version.to_owned(), durable, boot }
    }

    /// Whether this directory was filled completely and still exists.
    pub(super) fn is_complete(&self, server_directory: &Path) -> bool {
        Self::read(server_directory).as_ref() == Some(self) && self.path.is_dir()
    }

    /// Records that the directory is filled.
    pub(super) fn mark_complete(&self, server_directory: &Path) -> Result<()> {
        Ok(fs::write(server_directory.join(Self::FILE), serde_json::to_vec_pretty(self)?)?)
    }

    /// Removes the data directory of a server and its description.
    pub(super) fn remove(server_directory: &Path) -> Result<()> {
        if let Some(data) = Self::read(server_directory) {
            remove_directory(&data.path)?;
            fs::remove_file(server_directory.join(Self::FILE))?;
        }
        Ok(())
    }

    fn read(server_directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(server_directory.join(Self::FILE)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_directory_of_the_same_version_and_settings_is_used_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("data");
        fs::create_dir(&path).unwrap();
        let data = |version, durable| DataDirectory::new(path.clone(), version, durable);
        assert!(!data("1", false).is_complete(root.path()));
        data("1", false).mark_complete(root.path()).unwrap();
        assert!(data("1", false).is_complete(root.path()));
        assert!(!data("2", false).is_complete(root.path()));
        assert!(!data("1", true).is_complete(root.path()));
        DataDirectory::remove(root.path()).unwrap();
        assert!(!path.exists());
        assert!(!data("1", false).is_complete(root.path()));
    }
}
