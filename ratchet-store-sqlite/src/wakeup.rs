//! Telling other processes on the same file about new work.
//!
//! Beside the database lies a small file. Whoever has news appends one byte; everybody looks at its length fifty times a
//! second, which takes a system call and no statement. Nothing in it can be stale: a process that dies leaves a byte behind
//! at most. `docs/wakeups.md` tells what else was tried.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, WakeupListener};
use ratchet_api::{JobPriority, StoreResult};
use ratchet_store_core::Namespace;

/// Between two looks, and at least between two bytes of one process: what is told meanwhile goes out as one.
const TICK: Duration = Duration::from_millis(20);
/// A file that is longer begins anew.
const LONGEST: u64 = 1 << 16;

/// Where the file is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    database: PathBuf,
    file: PathBuf,
}

impl Place {
    /// Beside the database, one for each application in it.
    pub(crate) fn beside(database: &Path, namespace: &Namespace) -> Self {
        let mut file = database.as_os_str().to_owned();
        file.push(format!("-{}", namespace.table("wakeup")));
        Self { database: database.to_owned(), file: file.into() }
    }

    fn len(&self) -> u64 {
        // A file that is not there has told nothing.
        fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    /// Tells everybody.
    fn append(&self) -> io::Result<()> {
        let mut file = match OpenOptions::new().append(true).open(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make()?,
            opened => opened?,
        };
        if file.metadata()?.len() >= LONGEST {
            file.set_len(0)?;
        }
        file.write_all(b".")
    }

    /// Whoever may write the database may write the file.
    fn make(&self) -> io::Result<fs::File> {
        let file = OpenOptions::new().append(true).create(true).open(&self.file)?;
        fs::set_permissions(&self.file, fs::metadata(&self.database)?.permissions())?;
        Ok(file)
    }
}

/// What is known about the length of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally {
    mine: u64,
    others: u64,
}

impl Tally {
    /// From now on.
    const fn begin(len: u64) -> Self {
        Self { mine: 0, others: len }
    }

    /// Whether another process has told something since the last look.
    const fn look(&mut self, len: u64) -> bool {
        match len.checked_sub(self.mine + self.others) {
            Some(0) => false,
            Some(more) => {
                self.others += more;
                true
            }
            // It began anew, and who knows what stood in it.
            None => {
                *self = Self::begin(len);
                true
            }
        }
    }
}

/// Tells other processes on the same file about new work. A [`SqliteStore`](crate::SqliteStore) brings it along.
pub(crate) struct FileCoordinator {
    shared: Arc<Shared>,
    /// What looks and appends, once there is something to do.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    place: Place,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    listeners: Vec<WakeupListener>,
    /// There is something that the others have not been told.
    news: bool,
    tally: Option<Tally>,
    stopped: bool,
}

impl FileCoordinator {
    pub(crate) fn new(place: Place) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { place, state, changed }), thread: Mutex::new(None) }
    }

    /// Makes sure that somebody looks.
    fn attend(&self) {
        let mut running = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            let shared = Arc::clone(&self.shared);
            let name = "ratchet-wakeup".to_owned();
            match thread::Builder::new().name(name).spawn(move || attend(&shared)) {
                Ok(thread) => *running = Some(thread),
                Err(error) => tracing::warn!(%error, "no thread for wakeups; work is found by polling"),
            }
        }
        self.shared.changed.notify_one();
    }
}

#[async_trait]
impl ClusterCoordinator for FileCoordinator {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        let mut state = self.shared.state();
        let known = std::mem::replace(&mut state.news, true) || state.stopped;
        drop(state);
        if !known {
            self.attend();
        }
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        let mut state = self.shared.state();
        if state.stopped {
            return Ok(());
        }
        state.listeners.push(listener);
        state.tally.get_or_insert_with(|| Tally::begin(self.shared.place.len()));
        drop(state);
        self.attend();
        Ok(())
    }

    async fn shutdown(&self) {
        self.shared.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It ends at once, and it is no use to know that it panicked.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Drop for FileCoordinator {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        state.listeners.clear();
        drop(state);
        self.changed.notify_one();
    }
}

/// Appends what there is to tell, and looks whether others have.
fn attend(shared: &Shared) {
    let (mut free_at, mut failed) = (Instant::now(), false);
    let mut state = shared.state();
    loop {
        let stopped = state.stopped;
        if state.news && (stopped || Instant::now() >= free_at) {
            state.news = false;
            match shared.place.append() {
                Ok(()) => state.tally.iter_mut().for_each(|tally| tally.mine += 1),
                Err(error) if !failed => {
                    failed = true;
                    tracing::warn!(%error, "other processes are not told about new work; they find it by polling");
                }
                Err(_) => {}
            }
            free_at = Instant::now() + TICK;
        }
        if stopped {
            return;
        }
        if state.tally.as_mut().is_some_and(|tally| tally.look(shared.place.len())) {
            // Under the lock, so that none is called once a shutdown has returned.
            state.listeners.iter().for_each(|listener| listener());
        }
        let idle = state.tally.is_none() && !state.news;
        state = if idle {
            shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
        } else {
            let waited = shared.changed.wait_timeout(state, TICK);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Place) {
        let dir = tempfile::TempDir::new().expect("there is room for files");
        let database = dir.path().join("jobs.db");
        fs::write(&database, "").expect("there is room");
        let place = Place::beside(&database, &Namespace::bare());
        (dir, place)
    }

    #[test]
    fn what_others_append_is_news_and_what_this_process_appends_is_not() {
        let mut tally = Tally::begin(7);
        assert!(!tally.look(7));
        assert!(tally.look(8), "another told");
        assert!(!tally.look(8), "once");
        tally.mine += 1;
        assert!(!tally.look(9), "an echo");
        tally.mine += 1;
        assert!(tally.look(11), "both told");
        assert_eq!(tally, Tally { mine: 2, others: 9 });
    }

    #[test]
    fn a_file_that_begins_anew_is_news() {
        let mut tally = Tally { mine: 3, others: 40 };
        assert!(tally.look(0), "somebody removed it");
        assert!(!tally.look(0));
        assert!(tally.look(1));
        let mut tally = Tally { mine: 3, others: 40 };
        assert!(tally.look(2), "and somebody told something since");
        assert_eq!(tally, Tally { mine: 0, others: 2 });
    }

    #[test]
    fn the_file_lies_beside_the_database_one_for_each_application() {
        let path = |namespace: &Namespace| Place::beside(Path::new("/data/jobs.db"), namespace).file;
        assert_eq!(path(&Namespace::bare()), Path::new("/data/jobs.db-wakeup"));
        let shop = Namespace::prefix("shop_").expect("a name");
        assert_eq!(path(&shop), Path::new("/data/jobs.db-shop_wakeup"));
    }

    #[test]
    fn the_file_is_made_when_it_is_needed_and_does_not_grow_for_ever() {
        let (_dir, place) = place();
        assert_eq!(place.len(), 0);
        place.append().expect("it is made");
        assert_eq!(place.len(), 1);
        fs::write(&place.file, vec![b'.'; LONGEST as usize]).expect("there is room");
        place.append().expect("it begins anew");
        assert_eq!(place.len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn whoever_may_write_the_database_may_write_the_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, place) = place();
        fs::set_permissions(&place.database, fs::Permissions::from_mode(0o660)).expect("it is ours");
        place.append().expect("it is made");
        assert_eq!(fs::metadata(&place.file).expect("it is there").permissions().mode() & 0o777, 0o660);
    }
}
