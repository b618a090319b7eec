//! Where downloads and data lie: a cache of our own, outside of any source tree.
//!
//! Downloads are shared between checkouts and guarded by file locks. Data folders, logs and process
//! records belong to one checkout, named by a hash of its path.

use std::{
    fs::{self, File, TryLockError},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    process::{ProcessId, User},
    screen::Screen,
};

/// The variable that moves the cache elsewhere.
pub(crate) const VARIABLE: &str = "RATCHET_CACHE";

/// The cache folder, with the part that belongs to this checkout.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    root: PathBuf,
    checkout: String,
}

impl Cache {
    /// The cache as the environment says, for the checkout at `workspace`.
    pub(crate) fn open(workspace: &Path) -> Result<Self> {
        let root = root_from(|name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from))
            .with_context(|| format!("no place for the cache: set {VARIABLE} to a folder"))?;
        let root = std::path::absolute(root)?;
        let cache = Self { root, checkout: hash_of(workspace) };
        fs::create_dir_all(cache.checkout_folder())
            .with_context(|| format!("cannot make {}", cache.checkout_folder().display()))?;
        // Tells a person which checkout a folder belongs to.
        fs::write(cache.checkout_folder().join("path"), workspace.to_string_lossy().as_bytes())?;
        Ok(cache)
    }

    /// The folders that a server under this account can use: the cache, unless root's home, which
    /// nobody else may enter, is in the way.
    pub(crate) fn base_for(&self, user: Option<&User>) -> Base {
        const REACHABLE: &str = "/var/cache/ratchet";
        match user {
            Some(user) if !user.can_reach(&self.root.join("roots")) => Base(REACHABLE.into()),
            _ => Base(self.root.clone()),
        }
    }

    /// The folder of one server of this checkout, made if need be.
    pub(crate) fn server_folder(&self, server: &str) -> Result<PathBuf> {
        let folder = self.checkout_folder().join(server);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Where one server of this checkout keeps its data.
    pub(crate) fn data_folder(&self, base: &Base, server: &str) -> PathBuf {
        base.folder("checkouts").join(&self.checkout).join(server).join("data")
    }

    /// Waits until no other run changes this checkout's servers.
    pub(crate) fn lock_checkout(&self, screen: &Screen) -> Result<Lock> {
        Lock::take(&self.checkout_folder(), "servers", screen)
    }

    fn checkout_folder(&self) -> PathBuf {
        self.root.join("checkouts").join(&self.checkout)
    }
}

/// A folder for what checkouts share.
#[derive(Debug, Clone)]
pub(crate) struct Base(PathBuf);

impl Base {
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits until no other run works on `name`; the lock goes when the value is dropped.
    pub(crate) fn lock(&self, name: &str, screen: &Screen) -> Result<Lock> {
        Lock::take(&self.folder("locks"), name, screen)
    }

    /// The same without waiting: `None` while another run has it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        Lock::open(&self.folder("locks"), name)?.try_take()
    }
}

fn root_from(var: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    var(VARIABLE)
        .or_else(|| var("XDG_CACHE_HOME").map(|base| base.join("ratchet")))
        .or_else(|| var("HOME").map(|home| home.join(".cache").join("ratchet")))
}

fn hash_of(workspace: &Path) -> String {
    let path = fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
    let mut hash = hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()));
    hash.truncate(12);
    hash
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file lock, given back on drop or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    fn take(folder: &Path, name: &str, screen: &Screen) -> Result<Self> {
        if let Some(lock) = Self::open(folder, name)?.try_take()? {
            return Ok(lock);
        }
        screen.say(format!("waiting for another run that works on {name}"));
        let lock = Self::open(folder, name)?;
        lock.file.lock().with_context(|| format!("cannot lock {}", lock.path.display()))?;
        Ok(lock)
    }

    fn open(folder: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{name}.lock"));
        let file = File::options().create(true).truncate(false).write(true).open(&path)?;
        Ok(Self { file, path })
    }

    fn try_take(self) -> Result<Option<Self>> {
        match self.file.try_lock() {
            Ok(()) => Ok(Some(self)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(err)) => {
                Err(err).with_context(|| format!("cannot lock {}", self.path.display()))
            }
        }
    }
}

/// A file that was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fetched {
    file: String,
    bytes: u64,
    sha256: String,
}

/// The list of everything that one download brought, kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) what: String,
    pub(crate) files: Vec<Fetched>,
}

impl Manifest {
    const FILE: &str = "fetched.json";

    /// Hashes `files`.
    pub(crate) fn of(what: &str, files: &[PathBuf]) -> Result<Self> {
        let mut list = Vec::new();
        for path in files {
            let mut hash = Sha256::new();
            let mut file = File::open(path)?;
            let mut buffer = vec![0; 1 << 16];
            let mut bytes = 0;
            loop {
                let n = file.read(&mut buffer)?;
                if n == 0 {
                    break;
                }
                hash.update(&buffer[..n]);
                bytes += n as u64;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            list.push(Fetched { file: name, bytes, sha256: hex(&hash.finalize()) });
        }
        Ok(Self { what: what.to_owned(), files: list })
    }

    /// Marks `folder` as complete.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        Ok(fs::write(folder.join(Self::FILE), serde_json::to_vec_pretty(self)?)?)
    }

    /// Whether `folder` holds a complete download of `what`.
    pub(crate) fn is_complete(folder: &Path, what: &str) -> bool {
        fs::read(folder.join(Self::FILE))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok())
            .is_some_and(|manifest| manifest.what == what)
    }
}

/// What we remember of a server of this checkout between two commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `None` once it was stopped; the port stays, so that URLs stay good.
    pub(crate) process: Option<ProcessId>,
    pub(crate) port: u16,
    pub(crate) url: String,
    pub(crate) durable: bool,
    /// The URL of the server behind it.
    #[serde(default)]
    pub(crate) upstream: Option<String>,
}

impl Record {
    const FILE: &str = "server.json";

    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(Self::FILE)).ok()?).ok()
    }

    /// Written whole or not at all: a run that is cut off must not lose track of a process.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let draft = folder.join("server.json.new");
        fs::write(&draft, serde_json::to_vec_pretty(self)?)?;
        Ok(fs::rename(draft, folder.join(Self::FILE))?)
    }
}

/// Removes a folder with all that is in it, if it is there.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
            Err(err).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_its_own_variable_first() {
        let all = |name: &str| Some(PathBuf::from(format!("/{name}")));
        assert_eq!(root_from(all), Some("/RATCHET_CACHE".into()));
        let no_own = |name: &str| (name != VARIABLE).then(|| PathBuf::from(format!("/{name}")));
        assert_eq!(root_from(no_own), Some("/XDG_CACHE_HOME/ratchet".into()));
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
        assert_eq!(root_from(home), Some("/h/.cache/ratchet".into()));
        assert_eq!(root_from(|_| None), None);
    }

    #[test]
    fn two_checkouts_have_folders_of_their_own() {
        assert_ne!(hash_of(Path::new("/no/such/a")), hash_of(Path::new("/no/such/b")));
        assert_eq!(hash_of(Path::new("/no/such/a")).len(), 12);
    }

    #[test]
    fn a_manifest_lists_files_with_their_hashes() {
        let folder = std::env::temp_dir().join(format!("xtask-manifest-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.deb");
        fs::write(&file, "abc").unwrap();
        let manifest = Manifest::of("thing 1", &[file]).unwrap();
        assert_eq!(manifest.files[0].bytes, 3);
        assert!(manifest.files[0].sha256.starts_with("ba7816bf8f01cfea"));
        assert!(!Manifest::is_complete(&folder, "thing 1"));
        manifest.write(&folder).unwrap();
        assert!(Manifest::is_complete(&folder, "thing 1"));
        assert!(!Manifest::is_complete(&folder, "thing 2"));
        fs::remove_dir_all(folder).unwrap();
    }
}
