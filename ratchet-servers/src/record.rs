//! The record of a server that `cargo xtask servers up` started.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::process_id::ProcessId;

/// The name of the record file in the directory of a server.
pub(crate) const FILE: &str = "server.json";

/// The part of the record that tests need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// `None` once the server was stopped.
    pub(crate) process: Option<ProcessId>,
    pub(crate) url: String,
}

impl Endpoint {
    /// The process of the server, if it runs now.
    pub(crate) fn live_process(&self) -> Option<&ProcessId> {
        self.process.as_ref().filter(|process| process.is_alive())
    }
}

/// Reads the record in the directory of a server. `None` if the file is missing or unreadable.
pub(crate) fn read<T: DeserializeOwned>(directory: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()
}
