//! Notifies other processes on the same file of new work.
//!
//! A small file lies beside the database. A process with news appends a byte that says what it is about; every process
//! checks the file's length fifty times a second, which takes a system call and no statement, and reads the new bytes.
//! Nothing in it can be stale: a process that dies leaves a byte behind at most. `docs/wakeups.md` tells what else was
//! tried.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener};
use ratchet_api::{JobPriority, StoreResult};
use ratchet_store_core::Namespace;

/// The time between two checks.
const TICK: Duration = Duration::from_millis(20);
/// The length at which the file starts over.
const LONGEST: u64 = 1 << 16;

/// The location of the file.
#[derive(Clone, Debug)]
pub(crate) struct WakeupFile {
    database: PathBuf,
    file: PathBuf,
}

impl WakeupFile {
    /// The file beside the database, one for each application in it.
    pub(crate) fn beside(database: &Path, namespace: &Namespace) -> Self {
        let mut file = database.as_os_str().to_owned();
        file.push(format!("-{}", namespace.table("wakeup")));
        Self { database: database.to_owned(), file: file.into() }
    }

    fn len(&self) -> u64 {
        // A missing file has no news.
        fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    /// Appends the news; returns how many bytes that took.
    fn append(&self, news: News) -> io::Result<u64> {
        let mut file = match OpenOptions::new().append(true).open(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make()?,
            opened => opened?,
        };
        if file.metadata()?.len() >= LONGEST {
            file.set_len(0)?;
        }
        let bytes: Vec<u8> = news.kinds().map(byte_of).collect();
        file.write_all(&bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Reads the news in `count` bytes from this one on.
    fn read(&self, from: u64, count: u64) -> io::Result<News> {
        let mut file = fs::File::open(&self.file)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(count).read_to_end(&mut bytes)?;
        let told = |kind| bytes.contains(&byte_of(kind));
        Ok(News { work: told(WakeupKind::NewWork), cancel: told(WakeupKind::CancelRequested) })
    }

    /// Creates the file with the database's permissions: a user who may write the one may write the other.
    fn make(&self) -> io::Result<fs::File> {
        let file = OpenOptions::new().append(true).create(true).open(&self.file)?;
        fs::set_permissions(&self.file, fs::metadata(&self.database)?.permissions())?;
        Ok(file)
    }
}

/// The byte that stands for a kind of wakeup.
const fn byte_of(kind: WakeupKind) -> u8 {
    match kind {
        WakeupKind::CancelRequested => b'c',
        _ => b'.',
    }
}

/// The news to announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct News {
    work: bool,
    cancel: bool,
}

impl News {
    const ANYTHING: Self = Self { work: true, cancel: true };

    fn any(self) -> bool {
        self.work || self.cancel
    }

    fn kinds(self) -> impl Iterator<Item = WakeupKind> {
        let work = self.work.then_some(WakeupKind::NewWork);
        work.into_iter().chain(self.cancel.then_some(WakeupKind::CancelRequested))
    }
}

/// The known length of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally {
    /// The length at the last check.
    seen: u64,
    /// The bytes that this process has appended since.
    mine: u64,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// Others have appended: their news is in `count` bytes from this one on, mixed with the news of this process.
    Told {
        from: u64,
        count: u64,
    },
    /// The file started over, and its lost content is unknown.
    Anything,
}

impl Tally {
    /// Begins at the present length.
    const fn begin(len: u64) -> Self {
        Self { seen: len, mine: 0 }
    }

    const fn look(&mut self, len: u64) -> Found {
        let Self { seen, mine } = std::mem::replace(self, Self::begin(len));
        match len.checked_sub(seen) {
            None => Found::Anything,
            Some(more) if more == mine => Found::Nothing,
            Some(count) => Found::Told { from: seen, count },
        }
    }
}

/// Tells other processes on the same file about new work. A [`SqliteStore`](crate::SqliteStore) brings it along.
pub(crate) struct FileCoordinator {
    shared: Arc<Shared>,
    /// The thread that checks and appends, once there is something to do.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    place: WakeupFile,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    listeners: Vec<WakeupListener>,
    /// The news that the others have not been told.
    news: News,
    tally: Option<Tally>,
    stopped: bool,
}

impl FileCoordinator {
    pub(crate) fn new(place: WakeupFile) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { place, state, changed }), thread: Mutex::new(None) }
    }

    fn tell(&self, note: impl FnOnce(&mut News)) {
        let mut state = self.shared.state();
        let known = state.news.any() || state.stopped;
        note(&mut state.news);
        drop(state);
        if !known {
            self.attend();
        }
    }

    /// Makes sure that the thread runs, and wakes it.
    fn attend(&self) {
        let mut running = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            let shared = Arc::clone(&self.shared);
            let name = "ratchet-wakeup".to_owned();
            match thread::Builder::new().name(name).spawn(move || attend(&shared)) {
                Ok(thread) => *running = Some(thread),
                Err(error) => tracing::warn!(%error, "wakeup thread not started: work is found by polling"),
            }
        }
        self.shared.changed.notify_one();
    }
}

#[async_trait]
impl ClusterCoordinator for FileCoordinator {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        self.tell(|news| news.work = true);
        Ok(())
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.tell(|news| news.cancel = true);
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
        // The thread ends at once; whether it panicked does not matter.
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

/// Appends all pending news at once, and checks for news of others.
fn attend(shared: &Shared) {
    let mut failed = false;
    let mut state = shared.state();
    loop {
        let news = std::mem::take(&mut state.news);
        if news.any() {
            match shared.place.append(news) {
                Ok(bytes) => {
                    failed = false;
                    state.tally.iter_mut().for_each(|tally| tally.mine += bytes);
                }
                Err(error) if !failed => {
                    failed = true;
                    tracing::warn!(%error, "wakeups not sent: other processes find new work by polling");
                }
                Err(_) => {}
            }
        }
        if state.stopped {
            return;
        }
        let told = match state.tally.as_mut().map(|tally| tally.look(shared.place.len())) {
            None | Some(Found::Nothing) => News::default(),
            Some(Found::Told { from, count }) => shared.place.read(from, count).unwrap_or(News::ANYTHING),
            Some(Found::Anything) => News::ANYTHING,
        };
        for kind in told.kinds() {
            // Under the lock, so that none is called once a shutdown has returned.
            state.listeners.iter().for_each(|listener| listener(kind));
        }
        state = if state.tally.is_none() {
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

    const WORK: News = News { work: true, cancel: false };

    fn told(from: u64, count: u64) -> Found {
        Found::Told { from, count }
    }

    fn place() -> (tempfile::TempDir, WakeupFile) {
        let dir = tempfile::TempDir::new().expect("there is room for files");
        let database = dir.path().join("jobs.db");
        fs::write(&database, "").expect("there is room");
        let place = WakeupFile::beside(&database, &Namespace::bare());
        (dir, place)
    }

    #[test]
    fn what_others_append_is_news_and_what_this_process_appends_is_not() {
        let mut tally = Tally::begin(7);
        assert_eq!(tally.look(7), Found::Nothing);
        assert_eq!(tally.look(8), told(7, 1), "another told");
        assert_eq!(tally.look(8), Found::Nothing, "once");
        tally.mine += 1;
        assert_eq!(tally.look(9), Found::Nothing, "an echo");
        tally.mine += 1;
        assert_eq!(tally.look(11), told(9, 2), "both told, in whatever order");
        assert_eq!(tally, Tally { seen: 11, mine: 0 });
    }

    #[test]
    fn a_file_that_begins_anew_is_news() {
        let mut tally = Tally { seen: 43, mine: 0 };
        assert_eq!(tally.look(0), Found::Anything, "somebody removed it");
        assert_eq!(tally.look(0), Found::Nothing);
        assert_eq!(tally.look(1), told(0, 1));
        let mut tally = Tally { seen: 43, mine: 1 };
        assert_eq!(tally.look(2), Found::Anything, "and somebody told something since");
        assert_eq!(tally, Tally { seen: 2, mine: 0 });
    }

    #[test]
    fn the_bytes_say_what_was_told() {
        let (_dir, place) = place();
        let cancel = News { work: false, cancel: true };
        assert_eq!(place.append(WORK).expect("there is room"), 1);
        assert_eq!(place.append(cancel).expect("there is room"), 1);
        assert_eq!(place.append(News::ANYTHING).expect("there is room"), 2);
        let read = |from, count| place.read(from, count).expect("it is there");
        assert_eq!((read(0, 1), read(1, 1), read(2, 1), read(3, 9)), (WORK, cancel, WORK, cancel));
        assert_eq!((read(0, 2), read(4, 1)), (News::ANYTHING, News::default()));
    }

    #[test]
    fn the_file_lies_beside_the_database_one_for_each_application() {
        let path = |namespace: &Namespace| WakeupFile::beside(Path::new("/data/jobs.db"), namespace).file;
        assert_eq!(path(&Namespace::bare()), Path::new("/data/jobs.db-wakeup"));
        let shop = Namespace::prefix("shop_").expect("a name");
        assert_eq!(path(&shop), Path::new("/data/jobs.db-shop_wakeup"));
    }

    #[test]
    fn the_file_is_made_when_it_is_needed_and_does_not_grow_for_ever() {
        let (_dir, place) = place();
        assert_eq!(place.len(), 0);
        place.append(WORK).expect("it is made");
        assert_eq!(place.len(), 1);
        fs::write(&place.file, vec![b'.'; LONGEST as usize]).expect("there is room");
        place.append(WORK).expect("it begins anew");
        assert_eq!(place.len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn whoever_may_write_the_database_may_write_the_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, place) = place();
        fs::set_permissions(&place.database, fs::Permissions::from_mode(0o660)).expect("it is ours");
        place.append(WORK).expect("it is made");
        assert_eq!(fs::metadata(&place.file).expect("it is there").permissions().mode() & 0o777, 0o660);
    }
}
