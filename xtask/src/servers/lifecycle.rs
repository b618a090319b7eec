//! Bringing servers up, down, and telling where they are: the same for all of them.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{
    Installation, Name, Place, Server, Settings,
    cache::{Base, Cache, Lock, Record, remove_folder},
    probe::{Answer, ServerUrl, url::redacted},
    process::{ProcessId, boot_id},
    screen::{Screen, tail},
};

/// Time for a server to answer after its start: generous, for machines that build at the same time.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Time for a server that runs already.
const BUSY_LIMIT: Duration = Duration::from_secs(15);
const STARTS: usize = 5;
/// What PostgreSQL says for a moment after it was killed: its children have not ended yet.
const LEFTOVERS: [&str; 2] = ["postmaster.pid", "still in use"];

/// A server that can be used now.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) name: Name,
    pub(crate) url: String,
    pub(crate) origin: RunningSince,
    answer: Answer,
    took: Duration,
}

impl Running {
    /// What tests find it by.
    pub(crate) fn variable(&self) -> (&'static str, &str) {
        (self.name.variable(), &self.url)
    }
}

/// How we came by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunningSince {
    /// The user gave its URL.
    Given,
    /// An earlier command started it.
    Before,
    /// This command started it.
    Now,
}

/// Starts servers, all at once, and waits until each answers.
///
/// Prints a line for each on standard output. The error says how many could not be had; those that
/// could are up nevertheless.
pub(super) fn up(workspace: &Path, names: &[Name], durable: bool) -> Result<Vec<Running>> {
    let cache = Cache::open(workspace)?;
    let _lock = cache.lock_checkout(&Screen::new("servers"))?;
    let names = with_upstreams(names);
    let (fronts, backs): (Vec<Name>, Vec<Name>) = names.iter().partition(|name| name.upstream().is_some());
    let mut outcomes = all_at_once(&backs, |name| bring_up(&cache, name, durable, None));
    let url_of = |name| {
        let found = outcomes.iter().find(|(other, _)| *other == name);
        found.and_then(|(_, outcome)| outcome.as_ref().ok()).map(|server| server.url.clone())
    };
    let behind: BTreeMap<Name, Option<String>> =
        fronts.iter().map(|name| (*name, name.upstream().and_then(url_of))).collect();
    outcomes.extend(all_at_once(&fronts, |name| {
        let upstream = behind[&name].as_deref().context("the server behind it cannot be had")?;
        bring_up(&cache, name, durable, Some(upstream))
    }));
    let mut running = Vec::new();
    let mut failed = Vec::new();
    for (name, outcome) in outcomes {
        match outcome {
            Ok(server) => {
                println!("{}", summary(&server));
                running.push(server);
            }
            Err(err) => {
                eprintln!("\n{} cannot be had: {err:#}", name.as_str());
                if std::env::var_os(name.variable()).is_none() {
                    eprintln!("  to use a server of your own, set {}", name.variable());
                }
                eprintln!();
                failed.push(name.as_str());
            }
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} servers cannot be had: {}", failed.len(), names.len(), failed.join(", "));
    }
    Ok(running)
}

/// The names, and those of the servers that these pass work on to.
fn with_upstreams(names: &[Name]) -> Vec<Name> {
    let mut all: Vec<Name> = names.iter().copied().chain(names.iter().filter_map(|n| n.upstream())).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Does the same for each of them, in threads of their own.
fn all_at_once<T: Send>(names: &[Name], work: impl Fn(Name) -> Result<T> + Sync) -> Vec<(Name, Result<T>)> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = names.iter().map(|name| (*name, scope.spawn(move || work(*name)))).collect();
        let join = |(name, thread): (Name, thread::ScopedJoinHandle<'_, Result<T>>)| {
            (name, thread.join().unwrap_or_else(|_| bail!("the work on {} broke off", name.as_str())))
        };
        threads.into_iter().map(join).collect()
    })
}

fn summary(server: &Running) -> String {
    let since = match server.origin {
        RunningSince::Given => format!("given by {}", server.name.variable()),
        RunningSince::Before => "was up".to_owned(),
        RunningSince::Now => "started".to_owned(),
    };
    let note = server.answer.note.as_ref().map(|n| format!("; {n}")).unwrap_or_default();
    format!(
        "{:<9} {}  {}  {:.1} s  ({since}{note})",
        server.name.as_str(),
        server.answer.version,
        redacted(&server.url),
        server.took.as_secs_f64(),
    )
}

/// Stops the servers that this checkout started; those that are not running are fine too.
pub(super) fn down(workspace: &Path, names: &[Name], wipe: bool) -> Result<()> {
    let cache = Cache::open(workspace)?;
    let _lock = cache.lock_checkout(&Screen::new("servers"))?;
    let outcomes = all_at_once(names, |name| bring_down(&cache, name, wipe));
    let mut failures = 0;
    for (name, outcome) in outcomes {
        match outcome {
            Ok(what) => println!("{:<9} {what}", name.as_str()),
            Err(err) => {
                eprintln!("{:<9} {err:#}", name.as_str());
                failures += 1;
            }
        }
    }
    if failures > 0 {
        bail!("{failures} servers did not stop");
    }
    Ok(())
}

fn bring_down(cache: &Cache, name: Name, wipe: bool) -> Result<&'static str> {
    let folder = cache.server_folder(name.as_str())?;
    let mut said = "was not running";
    if let Some(mut record) = Record::read(&folder)
        && let Some(process) = record.process.take()
    {
        if process.is_alive() {
            said = if process.stop(name.server().stop_signal())? { "stopped" } else { "killed" };
        }
        record.write(&folder)?;
    }
    if wipe {
        DataMark::remove(&folder)?;
        remove_folder(&folder)?;
    }
    Ok(said)
}

/// The servers of this checkout that run now.
fn running(workspace: &Path) -> Result<Vec<Name>> {
    let cache = Cache::open(workspace)?;
    let mut names = Vec::new();
    for name in Name::ALL {
        let record = Record::read(&cache.server_folder(name.as_str())?);
        if record.and_then(|r| r.process).is_some_and(|process| process.is_alive()) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Has these servers run while `work` does, and stops those that were not up before, however it ends.
pub(crate) fn during<T>(
    workspace: &Path,
    needed: &[Name],
    durable: bool,
    work: impl FnOnce(&[Running]) -> Result<T>,
) -> Result<T> {
    if needed.is_empty() {
        return work(&[]);
    }
    let before = running(workspace)?;
    let started = up(workspace, needed, durable).context("this cannot run without its servers");
    let outcome = started.and_then(|running| work(&running));
    // Also after a failure to start: some of them may be up.
    let ours: Vec<Name> = needed.iter().copied().filter(|name| !before.contains(name)).collect();
    let stopped = if ours.is_empty() { Ok(()) } else { down(workspace, &ours, false) };
    let value = outcome?;
    stopped.map(|()| value)
}

/// Prints `export` lines for the servers that are up.
pub(super) fn env(workspace: &Path, names: &[Name]) -> Result<()> {
    let cache = Cache::open(workspace)?;
    let mut missing = Vec::new();
    for name in names {
        let record = Record::read(&cache.server_folder(name.as_str())?);
        let url = given_url(*name, record.as_ref()).or_else(|| {
            record.filter(|r| r.process.as_ref().is_some_and(ProcessId::is_alive)).map(|r| r.url)
        });
        match url {
            Some(url) => println!("export {}={}", name.variable(), shell_quoted(&url)),
            None => missing.push(name.as_str()),
        }
    }
    if !missing.is_empty() {
        bail!("not running: {0}; `cargo xtask servers up {0}` starts them", missing.join(" "));
    }
    Ok(())
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A URL from the environment, unless it is the one that we gave out ourselves.
fn given_url(name: Name, record: Option<&Record>) -> Option<String> {
    let given = std::env::var(name.variable()).ok().filter(|url| !url.is_empty())?;
    (record.map(|r| &r.url) != Some(&given)).then_some(given)
}

fn bring_up(cache: &Cache, name: Name, durable: bool, upstream: Option<&str>) -> Result<Running> {
    let screen = Screen::new(name.as_str());
    let server = name.server();
    let folder = cache.server_folder(name.as_str())?;
    let record = Record::read(&folder);
    let done =
        |url: String, origin, answer| Ok(Running { name, url, origin, answer, took: screen.elapsed() });
    if let Some(url) = given_url(name, record.as_ref()) {
        let answer = ServerUrl::parse(&url).and_then(|parsed| server.probe(&parsed)).with_context(|| {
            format!(
                "{} is set to {}: mend it, or unset it to have a server started",
                name.variable(),
                redacted(&url)
            )
        })?;
        return done(url, RunningSince::Given, answer);
    }
    if let Some(record) = &record
        && let Some(process) = record.process.as_ref().filter(|p| p.is_alive())
    {
        // Patiently: others may be testing on it with all the connections that it has.
        match usable_within(BUSY_LIMIT, server, &record.url, record.durable, || Ok(())) {
            Ok(_) if record.upstream.as_deref() != upstream => screen.say("restarting before another server"),
            Ok(answer) if record.durable || !durable => {
                return done(record.url.clone(), RunningSince::Before, answer);
            }
            Ok(_) => screen.say("restarting with durable settings"),
            Err(err) => screen.say(format!("restarting: {err:#}")),
        }
        process.stop(server.stop_signal())?;
    } else if record.as_ref().is_some_and(|r| r.process.is_some()) {
        screen.say("died since the last start, restarting");
    }
    let programs = server.provision(cache, &screen)?;
    let start =
        Start { cache, name, server, upstream, folder: &folder, programs: &programs, screen: &screen };
    let (url, answer) = start.run(record.map(|r| r.port), durable)?;
    done(url, RunningSince::Now, answer)
}

/// Asks a server to do its work once, and what it is.
fn usable(server: &dyn Server, url: &str, durable: bool) -> Result<Answer> {
    let url = ServerUrl::parse(url)?;
    server.ensure_usable(&url, durable)?;
    server.probe(&url)
}

/// The same, again and again until it succeeds, the time is over or `go_on` objects.
fn usable_within(
    limit: Duration,
    server: &dyn Server,
    url: &str,
    durable: bool,
    mut go_on: impl FnMut() -> Result<()>,
) -> Result<Answer> {
    let begun = Instant::now();
    loop {
        go_on()?;
        match usable(server, url, durable) {
            Ok(answer) => return Ok(answer),
            Err(err) if begun.elapsed() > limit => return Err(err.context("the server does not answer")),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// All that is needed to start one server.
struct Start<'a> {
    cache: &'a Cache,
    name: Name,
    server: &'a dyn Server,
    upstream: Option<&'a str>,
    folder: &'a Path,
    programs: &'a Installation,
    screen: &'a Screen,
}

impl Start<'_> {
    fn run(&self, last_port: Option<u16>, durable: bool) -> Result<(String, Answer)> {
        let mut tries = STARTS;
        let mut wanted_port = last_port;
        loop {
            tries -= 1;
            let (place, had_data) = self.prepare(durable)?;
            let (port, _port_lock) = self.free_port(wanted_port.take())?;
            let settings = Settings { port, durable };
            let url = self.server.url(port);
            let upstream = self.upstream.map(ServerUrl::parse).transpose()?;
            self.server.configure(self.programs, &place, &settings, upstream.as_ref())?;
            let mut child = self.server.launch(self.programs, &place, &settings).detach(&place.log)?;
            let process = ProcessId::of(child.id());
            let mut record = Record {
                process,
                port,
                url: url.clone(),
                durable,
                upstream: self.upstream.map(str::to_owned),
            };
            record.write(self.folder)?;
            match self.wait(&mut child, &url, durable) {
                Ok(answer) => {
                    self.screen.say("answers");
                    return Ok((url, answer));
                }
                Err(err) => {
                    if let Some(process) = record.process.take() {
                        process.stop("KILL")?;
                    }
                    child.wait()?;
                    record.write(self.folder)?;
                    let log = fs::read_to_string(&place.log).unwrap_or_default().to_lowercase();
                    wanted_port = Some(port);
                    if tries > 0 && log.contains("address already in use") {
                        self.screen.say(format!("port {port} was taken meanwhile, trying another"));
                        wanted_port = None;
                    } else if tries > 1 && LEFTOVERS.iter().any(|text| log.contains(text)) {
                        self.screen.say("what is left of the last run has not ended yet, waiting");
                        thread::sleep(Duration::from_secs(1));
                    } else if tries > 0 && had_data {
                        self.screen.say(format!("does not start with its old data, removing it: {err:#}"));
                        DataMark::remove(self.folder)?;
                    } else {
                        return Err(err.context(tail(&place.log, 20)));
                    }
                }
            }
        }
    }

    /// Makes sure that there is a data folder that fits; tells whether it was there before.
    fn prepare(&self, durable: bool) -> Result<(Place, bool)> {
        let mark = DataMark {
            folder: self.cache.data_folder(&self.base(), self.name.as_str()),
            version: self.programs.version.clone(),
            durable,
            // What was not synced did not survive a crash of the machine in good order.
            boot: if durable { String::new() } else { boot_id() },
        };
        let place = Place {
            data: mark.folder.clone(),
            temporary: self.folder.join("tmp"),
            log: self.folder.join("server.log"),
        };
        fs::create_dir_all(&place.temporary)?;
        if DataMark::read(self.folder).as_ref() == Some(&mark) && place.data.is_dir() {
            return Ok((place, true));
        }
        DataMark::remove(self.folder)?;
        remove_folder(&place.data)?;
        fs::create_dir_all(&place.data)?;
        if let Some(user) = &self.programs.user {
            user.own(&place.data)?;
        }
        self.screen.say("making a place for its data");
        self.server.initialise(self.programs, &place)?;
        mark.write(self.folder)?;
        Ok((place, false))
    }

    fn base(&self) -> Base {
        self.cache.base_for(self.programs.user.as_ref())
    }

    /// A port that nobody listens on, with a lock that keeps other checkouts' starts away from it.
    fn free_port(&self, wanted: Option<u16>) -> Result<(u16, Lock)> {
        const TRIES: usize = 20;
        for candidate in wanted.into_iter().chain(std::iter::repeat_n(0, TRIES)) {
            let Ok(listener) = TcpListener::bind(("127.0.0.1", candidate)) else { continue };
            let port = listener.local_addr()?.port();
            if let Some(lock) = self.cache.base_for(None).try_lock(&format!("port-{port}"))? {
                return Ok((port, lock));
            }
        }
        bail!("no free port on 127.0.0.1")
    }

    fn wait(&self, child: &mut Child, url: &str, durable: bool) -> Result<Answer> {
        self.screen.say("starting");
        usable_within(START_LIMIT, self.server, url, durable, || match child.try_wait()? {
            Some(status) => bail!("the server ended at once ({status})"),
            None => Ok(()),
        })
    }
}

/// What a data folder was made by and for; kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DataMark {
    folder: PathBuf,
    version: String,
    durable: bool,
    boot: String,
}

impl DataMark {
    const FILE: &str = "data.json";

    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(Self::FILE)).ok()?).ok()
    }

    fn write(&self, folder: &Path) -> Result<()> {
        Ok(fs::write(folder.join(Self::FILE), serde_json::to_vec_pretty(self)?)?)
    }

    /// Removes the data folder that the mark tells of, and the mark.
    fn remove(folder: &Path) -> Result<()> {
        if let Some(mark) = Self::read(folder) {
            remove_folder(&mark.folder)?;
            fs::remove_file(folder.join(Self::FILE))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_quoted_for_the_shell() {
        assert_eq!(shell_quoted("mongodb://h/?a=b&c=d"), "'mongodb://h/?a=b&c=d'");
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_pooler_comes_with_the_server_behind_it() {
        assert_eq!(with_upstreams(&[Name::Pgbouncer]), [Name::Postgres, Name::Pgbouncer]);
        assert_eq!(with_upstreams(&Name::ALL), Name::ALL);
        assert_eq!(with_upstreams(&[Name::Mysql]), [Name::Mysql]);
    }

    #[test]
    fn a_summary_names_version_url_and_seconds_but_no_password() {
        let server = Running {
            name: Name::Postgres,
            url: "postgres://app:secret@db:5432/x".into(),
            origin: RunningSince::Given,
            answer: Answer { version: "15.18".into(), note: None },
            took: Duration::from_millis(120),
        };
        assert_eq!(
            summary(&server),
            "postgres  15.18  postgres://app:***@db:5432/x  0.1 s  \
             (given by RATCHET_TEST_POSTGRES_URL)"
        );
    }
}
