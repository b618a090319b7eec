//! The cache directory: downloads, locks, and the data of the servers of each checkout.
//!
//! Checkouts share downloads, under file locks. Data, logs and records belong to one checkout.

use std::{
    fs::{self, File, TryLockError},
    io::Read,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    account::Account,
    progress::{Progress, megabytes},
};
use crate::{
    Server,
    checkout::{CACHE_VARIABLE, Checkout, hex, path_hash, process_environment},
    record::{self, Endpoint},
};

/// The cache, as seen by one checkout.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    checkout: Checkout,
}

impl Cache {
    /// The cache as the environment says, for the checkout at `workspace`.
    pub(crate) fn open(workspace: &Path) -> Result<Self> {
        let checkout = Checkout::new(&process_environment, workspace)
            .with_context(|| format!("no directory for the cache: set {CACHE_VARIABLE} to one"))?;
        let directory = checkout.directory();
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        // Shows a person which checkout the directory belongs to.
        fs::write(directory.join("path"), workspace.to_string_lossy().as_bytes())?;
        Ok(Self { checkout })
    }

    /// The part that all checkouts share.
    pub(crate) fn shared(&self) -> Shared {
        Shared(self.checkout.cache().to_owned())
    }

    /// A shared part that this account can reach. The home directory of root, where the cache is by default, is closed
    /// to every other account.
    pub(crate) fn shared_for(&self, account: Option<&Account>) -> Shared {
        const REACHABLE: &str = "/var/cache/ratchet";
        let cache = self.checkout.cache();
        match account {
            // Separate for each cache: files unknown to one cache may be in use by another.
            Some(account) if !account.can_reach(&cache.join("roots")) => {
                Shared(Path::new(REACHABLE).join(path_hash(cache)))
            }
            _ => self.shared(),
        }
    }

    /// The directory for records and logs of a server of this checkout, created if needed.
    pub(crate) fn server_directory(&self, server: Server) -> Result<PathBuf> {
        let directory = self.checkout.server_directory(server);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// The data directory of a server of this checkout.
    pub(crate) fn data_directory(&self, shared: &Shared, server: Server) -> PathBuf {
        shared.directory("checkouts").join(self.checkout.id()).join(server.name()).join("data")
    }

    /// Waits until no other command changes the servers of this checkout.
    pub(crate) fn lock_checkout(&self) -> Result<Lock> {
        Progress::ticking("servers", "locking the checkout", |progress| {
            Lock::take(&self.checkout.directory(), "servers", progress)
        })
    }
}

/// A directory for downloads and locks, shared by checkouts.
#[derive(Debug, Clone)]
pub(crate) struct Shared(PathBuf);

impl Shared {
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits until no other command works on `name`; the lock is released on drop.
    pub(crate) fn lock(&self, name: &str, progress: &Progress) -> Result<Lock> {
        Lock::take(&self.directory("locks"), name, progress)
    }

    /// The same without waiting: `None` while another command has it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        Lock::open(&self.directory("locks"), name)?.try_take()
    }
}

/// A file lock, released on drop or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    fn take(directory: &Path, name: &str, progress: &Progress) -> Result<Self> {
        if let Some(lock) = Self::open(directory, name)?.try_take()? {
            return Ok(lock);
        }
        let lock = Self::open(directory, name)?;
        progress
            .step(format!("waiting for another command that works on {name}"), || lock.file.lock())
            .with_context(|| format!("cannot lock {}", lock.path.display()))?;
        Ok(lock)
    }

    fn open(directory: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{name}.lock"));
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

/// A file that was downloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fetched {
    file: String,
    bytes: u64,
    sha256: String,
}

/// The list of the files of one download, kept beside it. Its presence says that the download is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    what: String,
    files: Vec<Fetched>,
}

impl Manifest {
    const FILE: &str = "fetched.json";

    /// Hashes `files`.
    pub(crate) fn of(what: &str, files: &[PathBuf], progress: &Progress) -> Result<Self> {
        let hashed = Arc::new(AtomicU64::new(0));
        let so_far = Arc::clone(&hashed);
        let detail = move || megabytes(so_far.load(Ordering::Relaxed));
        progress.measured_step("hashing the downloads", detail, || {
            let list: Result<_> = files.iter().map(|path| Fetched::hash(path, &hashed)).collect();
            Ok(Self { what: what.to_owned(), files: list? })
        })
    }

    /// Marks `directory` as complete.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        Ok(fs::write(directory.join(Self::FILE), serde_json::to_vec_pretty(self)?)?)
    }

    /// Whether `directory` has a complete download of `what`.
    pub(crate) fn is_complete(directory: &Path, what: &str) -> bool {
        fs::read(directory.join(Self::FILE))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok())
            .is_some_and(|manifest| manifest.what == what)
    }
}

impl Fetched {
    fn hash(path: &Path, hashed: &AtomicU64) -> Result<Self> {
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
            hashed.fetch_add(n as u64, Ordering::Relaxed);
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { file, bytes, sha256: hex(&hash.finalize()) })
    }
}

/// The state of a server of this checkout that is kept between two commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) endpoint: Endpoint,
    /// Kept after a stop, so that the next start has the same URL if the port is still free.
    pub(crate) port: u16,
    pub(crate) durable: bool,
    /// The URL of the server behind it.
    #[serde(default)]
    pub(crate) upstream: Option<String>,
}

impl Record {
    /// The record in the directory of a server, if there is one. An unreadable record is an error: it may be of a
    /// running server, whose data must not be touched.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(record::FILE);
        match record::read(directory) {
            None if path.exists() => bail!(
                "{} cannot be read: end the server that it was written for, if that is running, and remove the file",
                path.display()
            ),
            record => Ok(record),
        }
    }

    /// Writes the record atomically: a command that is cut off must not lose track of a process.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let draft = directory.join("server.json.new");
        fs::write(&draft, serde_json::to_vec_pretty(self)?)?;
        Ok(fs::rename(draft, directory.join(record::FILE))?)
    }
}

/// Removes a directory with everything in it, if it exists.
pub(crate) fn remove_directory(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
            Err(err).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_read_is_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Record::read(directory.path()).unwrap().is_none());
        fs::write(directory.path().join(record::FILE), "{garbage").unwrap();
        let error = Record::read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("remove the file"), "{error}");
    }

    #[test]
    fn a_manifest_lists_files_with_their_hashes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.deb");
        fs::write(&file, "abc").unwrap();
        let manifest =
            Progress::ticking("a", "hashing", |progress| Manifest::of("thing 1", &[file], progress)).unwrap();
        assert_eq!(manifest.files[0].bytes, 3);
        assert!(manifest.files[0].sha256.starts_with("ba7816bf8f01cfea"));
        assert!(!Manifest::is_complete(directory.path(), "thing 1"));
        manifest.write(directory.path()).unwrap();
        assert!(Manifest::is_complete(directory.path(), "thing 1"));
        assert!(!Manifest::is_complete(directory.path(), "thing 2"));
    }

    #[test]
    fn tests_can_read_the_endpoint_of_a_record() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = Endpoint { process: None, url: "mysql://root@127.0.0.1:1/ratchet".into() };
        let record = Record { endpoint: endpoint.clone(), port: 1, durable: true, upstream: None };
        record.write(directory.path()).unwrap();
        assert_eq!(Record::read(directory.path()).unwrap(), Some(record));
        assert_eq!(record::read(directory.path()), Some(endpoint));
    }
}
