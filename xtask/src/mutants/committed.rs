//! Committed results: a TOML file below a heading.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Serialize, de::DeserializeOwned};

/// Reads a file of the checkout; a missing one is empty.
pub(super) fn read<T: Default + DeserializeOwned>(workspace: &Path, file: &'static str) -> Result<T> {
    let path = workspace.join(file);
    if !path.exists() {
        return Ok(T::default());
    }
    toml::from_str(&fs::read_to_string(path)?).context(file)
}

pub(super) fn write<T: Serialize>(workspace: &Path, file: &str, header: &str, results: &T) -> Result<()> {
    let text = format!("{header}\n{}", toml::to_string(results)?);
    fs::write(workspace.join(file), text).with_context(|| format!("cannot write {file}"))
}
