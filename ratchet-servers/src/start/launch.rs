//! Starting one server.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use super::{
    cache::{Cache, Lock, Record, remove_directory},
    data::DataDirectory,
    probe::check_port,
    progress::{Progress, tail},
    recipes::{Directories, Installation, Recipe, Settings, recipe},
};
use crate::{Server, process_id::ProcessId, record::Endpoint};

/// Time for a server to answer after its start: generous, for machines that compile at the same time.
pub(super) const START_LIMIT: Duration = Duration::from_secs(120);
const ATTEMPTS: usize = 5;
/// Texts in the log of PostgreSQL shortly after it was killed, while its children have not ended yet.
const LEFTOVERS: [&str; 2] = ["postmaster.pid", "still in use"];

/// Makes a server ready and asks for its version, again and again until it succeeds, the time is over or `check` fails.
pub(super) fn ready_within(
    limit: Duration,
    recipe: &dyn Recipe,
    url: &str,
    settings: Settings,
    mut check: impl FnMut() -> Result<()>,
) -> Result<String> {
    let begun = Instant::now();
    loop {
        check()?;
        let attempt = || {
            check_port(settings.port)?;
            recipe.make_ready(url, settings.durable)?;
            recipe.version(url)
        };
        match attempt() {
            Ok(version) => return Ok(version),
            Err(err) if begun.elapsed() > limit => return Err(err.context("the server does not answer")),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// All that is needed to start one server.
pub(super) struct Launch<'a> {
    cache: &'a Cache,
    server: Server,
    recipe: &'static dyn Recipe,
    durable: bool,
    upstream: Option<&'a str>,
    directory: PathBuf,
    installation: &'a Installation,
    progress: &'a Progress,
}

impl<'a> Launch<'a> {
    pub(super) fn new(
        cache: &'a Cache,
        server: Server,
        durable: bool,
        upstream: Option<&'a str>,
        installation: &'a Installation,
        progress: &'a Progress,
    ) -> Result<Self> {
        let directory = cache.server_directory(server)?;
        let recipe = recipe(server);
        Ok(Self { cache, server, recipe, durable, upstream, directory, installation, progress })
    }

    /// Starts the server, on the port of its last start if that is free, and returns its URL and version.
    pub(super) fn run(&self, last_port: Option<u16>) -> Result<(String, String)> {
        let mut attempts = ATTEMPTS;
        let mut wanted_port = last_port;
        loop {
            attempts -= 1;
            let (directories, had_data) = self.prepare_data()?;
            let (port, _port_lock) = free_port(self.cache, wanted_port.take())?;
            let err = match self.attempt(&directories, port)? {
                Ok(version) => return Ok((self.recipe.url(port), version)),
                Err(err) => err,
            };
            let log = fs::read_to_string(&directories.log).unwrap_or_default().to_lowercase();
            wanted_port = Some(port);
            if attempts > 0 && log.contains("address already in use") {
                self.progress.say(format!("port {port} was taken meanwhile, trying another"));
                wanted_port = None;
            } else if attempts > 1 && LEFTOVERS.iter().any(|text| log.contains(text)) {
                self.progress.say("processes of the last run have not ended yet, trying again");
                thread::sleep(Duration::from_secs(1));
            } else if attempts > 0 && had_data {
                self.progress.say(format!("does not start with its old data, removing it: {err:#}"));
                DataDirectory::remove(&self.directory)?;
            } else {
                return Err(err.context(tail(&directories.log, 20)));
            }
        }
    }

    /// Starts the process and waits until the server answers. The inner error is the server's: another attempt may
    /// succeed.
    fn attempt(&self, directories: &Directories, port: u16) -> Result<Result<String>> {
        let settings = Settings { port, durable: self.durable };
        let url = self.recipe.url(port);
        self.recipe.configure(self.installation, directories, &settings, self.upstream)?;
        let command = self.recipe.command_line(self.installation, directories, &settings);
        let mut child = command.detach(&directories.log)?;
        let endpoint = Endpoint { process: ProcessId::of(child.id()), url: url.clone() };
        let upstream = self.upstream.map(str::to_owned);
        let mut record = Record { endpoint, port, durable: self.durable, upstream };
        record.write(&self.directory)?;
        let answer = self.progress.step(format!("starting on port {port}"), || {
            ready_within(START_LIMIT, self.recipe, &url, settings, || check_child(&mut child))
        });
        if answer.is_ok() {
            self.progress.say("answers");
        } else {
            if let Some(process) = record.endpoint.process.take() {
                process.stop("KILL")?;
            }
            child.wait()?;
            record.write(&self.directory)?;
        }
        Ok(answer)
    }

    /// Ensures that there is a suitable data directory; returns whether it existed before.
    fn prepare_data(&self) -> Result<(Directories, bool)> {
        let shared = self.cache.shared_for(self.installation.account.as_ref());
        let path = self.cache.data_directory(&shared, self.server);
        let data = DataDirectory::new(path, &self.installation.version, self.durable);
        let directories = Directories {
            data: data.path.clone(),
            temporary: self.directory.join("tmp"),
            log: self.directory.join("server.log"),
        };
        fs::create_dir_all(&directories.temporary)?;
        if data.is_complete(&self.directory) {
            return Ok((directories, true));
        }
        self.progress.step("initialising the data directory", || {
            DataDirectory::remove(&self.directory)?;
            remove_directory(&data.path)?;
            fs::create_dir_all(&data.path)?;
            if let Some(account) = &self.installation.account {
                account.own(&data.path)?;
            }
            self.recipe.initialise(self.installation, &directories)?;
            data.mark_complete(&self.directory)
        })?;
        Ok((directories, false))
    }
}

/// A free port, with a lock against the starts of other checkouts.
pub(super) fn free_port(cache: &Cache, wanted: Option<u16>) -> Result<(u16, Lock)> {
    const ATTEMPTS: usize = 20;
    for candidate in wanted.into_iter().chain(std::iter::repeat_n(0, ATTEMPTS)) {
        let Ok(listener) = TcpListener::bind(("127.0.0.1", candidate)) else { continue };
        let port = listener.local_addr()?.port();
        if let Some(lock) = cache.shared().try_lock(&format!("port-{port}"))? {
            return Ok((port, lock));
        }
    }
    bail!("no free port on 127.0.0.1")
}

pub(super) fn check_child(child: &mut Child) -> Result<()> {
    match child.try_wait()? {
        Some(status) => bail!("the server ended at once ({status})"),
        None => Ok(()),
    }
}
