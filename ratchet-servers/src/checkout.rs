//! The checkout that this process works for, and the directory of its server records.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::Server;

/// The variable that moves the cache to another directory.
pub(crate) const CACHE_VARIABLE: &str = "RATCHET_CACHE";

/// A function that reads environment variables; tests pass one of their own.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The environment of this process.
pub(crate) fn process_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// One checkout of the sources. Its servers are recorded in the cache under a hash of its path, so that two checkouts
/// on one machine never share a server.
#[derive(Debug, Clone)]
pub(crate) struct Checkout {
    cache: PathBuf,
    id: String,
}

impl Checkout {
    /// The checkout whose workspace root is `workspace`. `None` without a home directory for the cache.
    pub(crate) fn new(environment: Environment<'_>, workspace: &Path) -> Option<Self> {
        let cache = std::path::absolute(cache_root(environment)?).ok()?;
        Some(Self { cache, id: path_hash(workspace) })
    }

    /// The directory for the records and logs of one server.
    pub(crate) fn server_directory(&self, server: Server) -> PathBuf {
        self.directory().join(server.name())
    }

    /// The directory of this checkout in the cache.
    pub(crate) fn directory(&self) -> PathBuf {
        self.cache.join("checkouts").join(&self.id)
    }

    /// The root of the cache, which all checkouts share.
    #[cfg(feature = "start")]
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// A short hash of the path of the checkout.
    #[cfg(feature = "start")]
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

/// The workspace root above the running package (cargo sets `CARGO_MANIFEST_DIR` for the tests and programs that it
/// runs) or above the current directory. Paths known at compile time are of no use: checkouts may share a target
/// directory and with it the compiled tests.
pub(crate) fn workspace_root(environment: Environment<'_>, current: Option<PathBuf>) -> Option<PathBuf> {
    let package = non_empty(environment, "CARGO_MANIFEST_DIR").map(PathBuf::from);
    let start = package.or(current)?;
    start.ancestors().find(|directory| directory.join("Cargo.lock").is_file()).map(Path::to_owned)
}

/// The value of a variable; an empty one counts as not set.
pub(crate) fn non_empty(environment: Environment<'_>, name: &str) -> Option<OsString> {
    environment(name).filter(|value| !value.is_empty())
}

fn cache_root(environment: Environment<'_>) -> Option<PathBuf> {
    let path = |name| non_empty(environment, name).map(PathBuf::from);
    path(CACHE_VARIABLE)
        .or_else(|| path("XDG_CACHE_HOME").map(|base| base.join("ratchet")))
        .or_else(|| path("HOME").map(|home| home.join(".cache").join("ratchet")))
}

/// A short name for a path.
pub(crate) fn path_hash(path: &Path) -> String {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut hash = hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()));
    hash.truncate(12);
    hash
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_its_own_variable_first() {
        let all = |name: &str| Some(format!("/{name}").into());
        assert_eq!(cache_root(&all), Some("/RATCHET_CACHE".into()));
        let no_own = |name: &str| (name != CACHE_VARIABLE).then(|| format!("/{name}").into());
        assert_eq!(cache_root(&no_own), Some("/XDG_CACHE_HOME/ratchet".into()));
        let home = |name: &str| (name == "HOME").then(|| "/h".into());
        assert_eq!(cache_root(&home), Some("/h/.cache/ratchet".into()));
        let empty = |name: &str| Some(if name == "HOME" { "/h".into() } else { OsString::new() });
        assert_eq!(cache_root(&empty), Some("/h/.cache/ratchet".into()));
        assert_eq!(cache_root(&|_| None), None);
    }

    #[test]
    fn two_checkouts_have_directories_of_their_own() {
        let home = |name: &str| (name == "HOME").then(|| "/h".into());
        let directory = |path: &str| Checkout::new(&home, Path::new(path)).unwrap().directory();
        assert_ne!(directory("/no/such/a"), directory("/no/such/b"));
        assert_eq!(path_hash(Path::new("/no/such/a")).len(), 12);
    }

    #[test]
    fn the_workspace_is_the_nearest_directory_with_a_lock_file() {
        let root = tempfile::tempdir().unwrap();
        let (package, elsewhere) = (root.path().join("a/b"), root.path().join("c"));
        fs::create_dir_all(&package).unwrap();
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(root.path().join("a/Cargo.lock"), "").unwrap();
        fs::write(elsewhere.join("Cargo.lock"), "").unwrap();
        let by_cargo = |name: &str| (name == "CARGO_MANIFEST_DIR").then(|| package.clone().into());
        // The package that cargo runs counts, not the current directory.
        assert_eq!(workspace_root(&by_cargo, Some(elsewhere.clone())), Some(root.path().join("a")));
        assert_eq!(workspace_root(&|_| None, Some(elsewhere.clone())), Some(elsewhere));
        assert_eq!(workspace_root(&|_| None, Some("/no/such/directory".into())), None);
        assert_eq!(workspace_root(&|_| None, None), None);
    }
}
