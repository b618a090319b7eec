//! Starting servers and printing their URLs.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, anyhow, bail};

use super::{
    cache::{Cache, Record},
    down::down,
    for_each,
    launch::{Launch, ready_within},
    progress::Progress,
    recipes::{Settings, recipe, upstream},
    replica_set,
    url::redacted,
};
use crate::{
    Server,
    checkout::{Environment, non_empty, process_environment},
};

/// Time for a reply of a server that is already running: others may use all of its connections.
const BUSY_LIMIT: Duration = Duration::from_secs(15);

/// A server that is ready for use.
#[derive(Debug, Clone)]
pub struct Running {
    /// The kind of server.
    pub server: Server,
    /// Its URL.
    pub url: String,
    /// How it was started.
    pub origin: Origin,
    version: String,
    took: Duration,
}

impl Running {
    /// The environment variable for tests, with its value.
    #[must_use]
    pub fn variable(&self) -> (&'static str, &str) {
        (self.server.variable(), &self.url)
    }
}

/// How a server was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By the user: the URL is in the environment.
    Given,
    /// By an earlier command.
    Earlier,
    /// By this command.
    Started,
}

/// The settings with which servers are to run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Whether with durable settings, as for benchmarks.
    pub durable: bool,
    /// The number of members of MongoDB's replica set: by default that of the running set, or one.
    pub replica_set: Option<usize>,
}

/// Starts servers, all at once, and waits until each answers.
///
/// Prints a line for each on standard output.
///
/// # Errors
/// The message says how many servers are not available; the others are up nevertheless.
pub fn up(workspace: &Path, servers: &[Server], wanted: Wanted) -> Result<Vec<Running>> {
    let cache = Cache::open(workspace)?;
    let _lock = cache.lock_checkout()?;
    let servers = with_upstreams(servers);
    let (poolers, databases): (Vec<_>, Vec<_>) =
        servers.iter().partition(|server| upstream(**server).is_some());
    let outcomes = for_each(&databases, |database| {
        let up = bring_up(&cache, database, wanted, None);
        let in_front = poolers.iter().filter(|pooler| upstream(**pooler) == Some(database));
        let mut outcomes: Vec<_> = in_front
            .map(|pooler| match &up {
                Ok(up) => (*pooler, bring_up(&cache, *pooler, wanted, Some(&up.url))),
                Err(_) => (*pooler, Err(anyhow!("{database} behind it is not available"))),
            })
            .collect();
        outcomes.push((database, up));
        Ok(outcomes)
    });
    let mut outcomes: Vec<_> = outcomes
        .into_iter()
        .flat_map(|(server, outcomes)| outcomes.unwrap_or_else(|panic| vec![(server, Err(panic))]))
        .collect();
    outcomes.sort_by_key(|(server, _)| *server);
    let mut running = Vec::new();
    let mut failed = Vec::new();
    for (server, outcome) in outcomes {
        match outcome {
            Ok(up) => {
                println!("{}", summary(&up));
                running.push(up);
            }
            Err(err) => {
                eprintln!("\n{server} is not available: {err:#}");
                if std::env::var_os(server.variable()).is_none() {
                    eprintln!("  to use a server of your own, set {}", server.variable());
                }
                eprintln!();
                failed.push(server.name());
            }
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} servers are not available: {}", failed.len(), servers.len(), failed.join(", "));
    }
    Ok(running)
}

/// The servers, and those behind them.
fn with_upstreams(servers: &[Server]) -> Vec<Server> {
    let behind = servers.iter().filter_map(|server| upstream(*server));
    let mut all: Vec<Server> = servers.iter().copied().chain(behind).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn summary(running: &Running) -> String {
    let origin = match running.origin {
        Origin::Given => format!("given by {}", running.server.variable()),
        Origin::Earlier => "was up".to_owned(),
        Origin::Started => "started".to_owned(),
    };
    format!(
        "{:<9} {}  {}  {:.1} s  ({origin})",
        running.server,
        running.version,
        redacted(&running.url),
        running.took.as_secs_f64(),
    )
}

fn bring_up(cache: &Cache, server: Server, wanted: Wanted, upstream: Option<&str>) -> Result<Running> {
    Progress::ticking(server.name(), "checking whether it is up", |progress| {
        let directory = cache.server_directory(server)?;
        let record = Record::read(&directory)?;
        let members = match server {
            Server::Mongodb => wanted.replica_set.unwrap_or_else(|| running_members(record.as_ref())),
            _ => 1,
        };
        let wanted = Wanted { replica_set: Some(members), ..wanted };
        let done =
            |origin, (url, version)| Ok(Running { server, url, origin, version, took: progress.elapsed() });
        if let Some(url) = given_url(server, record.as_ref(), &process_environment) {
            let version = given_version(server, &url).with_context(|| {
                format!(
                    "{} is set to {}: correct it, or unset it to have a server started",
                    server.variable(),
                    redacted(&url)
                )
            })?;
            return done(Origin::Given, (url, version));
        }
        if let Some(record) = &record
            && let Some(version) = still_up(record, server, &directory, wanted, upstream, progress)?
        {
            return done(Origin::Earlier, (record.endpoint.url.clone(), version));
        }
        let installation =
            progress.step("looking for its programs", || recipe(server).provision(cache, progress))?;
        let launch = Launch::new(cache, server, wanted.durable, upstream, &installation, progress)?;
        let (mut url, version) = launch.run(record.map(|record| record.port))?;
        if members > 1
            && let Some(first) = Record::read(&directory)?
        {
            url = replica_set::grow(cache, &installation, &first, members, progress)?;
        }
        done(Origin::Started, (url, version))
    })
}

/// The number of members of the running replica set; one if none runs.
fn running_members(record: Option<&Record>) -> usize {
    let running = record.filter(|record| record.endpoint.live_process().is_some());
    running.map_or(1, |record| replica_set::members_of(&record.endpoint.url))
}

/// The version of a server that already runs, if it is usable as it is. Otherwise the server is stopped.
fn still_up(
    record: &Record,
    server: Server,
    directory: &Path,
    wanted: Wanted,
    upstream: Option<&str>,
    progress: &Progress,
) -> Result<Option<String>> {
    let recipe = recipe(server);
    let others = replica_set::others(directory)?;
    let Some(process) = record.endpoint.live_process() else {
        if record.endpoint.process.is_some() {
            progress.say("ended since its last start, starting it again");
        }
        others.into_iter().try_for_each(replica_set::Member::stop)?;
        return Ok(None);
    };
    let settings = Settings { port: record.port, durable: record.durable };
    match ready_within(BUSY_LIMIT, recipe, &record.endpoint.url, settings, || Ok(())) {
        Ok(_) if record.upstream.as_deref() != upstream => {
            progress.say("restarting in front of another server");
        }
        Ok(_) if Some(others.len() + 1) != wanted.replica_set => {
            progress.say("restarting with other members");
        }
        Ok(version) if record.durable || !wanted.durable => return Ok(Some(version)),
        Ok(_) => progress.say("restarting with durable settings"),
        Err(err) => progress.say(format!("restarting: {err:#}")),
    }
    let signal = if others.is_empty() { recipe.stop_signal() } else { replica_set::STOP_SIGNAL };
    progress.step("stopping", || process.stop(signal))?;
    others.into_iter().try_for_each(replica_set::Member::stop)?;
    Ok(None)
}

/// Logs in to a server of the user's and returns its version, if it is the kind of server that its variable is for.
fn given_version(server: Server, url: &str) -> Result<String> {
    let schemes: &[&str] = match server {
        Server::Postgres | Server::Pgbouncer => &["postgres", "postgresql"],
        Server::Mysql | Server::Mariadb => &["mysql", "mariadb"],
        Server::Mongodb => &["mongodb", "mongodb+srv"],
    };
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) {
        bail!("a URL for {server} begins with {}://", schemes[0]);
    }
    let version = recipe(server).version(url)?;
    let is_mariadb = version.contains("MariaDB");
    match server {
        Server::Mysql if is_mariadb => bail!("this is MariaDB {version}, not MySQL"),
        Server::Mariadb if !is_mariadb => bail!("this is MySQL {version}, not MariaDB"),
        _ => Ok(version),
    }
}

/// A URL from the environment, unless it is the one that an earlier command printed.
fn given_url(server: Server, record: Option<&Record>, environment: Environment<'_>) -> Option<String> {
    let given = non_empty(environment, server.variable())?.to_string_lossy().into_owned();
    (record.map(|record| &record.endpoint.url) != Some(&given)).then_some(given)
}

/// Keeps servers up while `work` runs, and stops those that were not up before, whatever its outcome.
///
/// # Errors
/// A server is not available, `work` fails, or a server does not stop.
pub fn during<T>(
    workspace: &Path,
    needed: &[Server],
    durable: bool,
    work: impl FnOnce(&[Running]) -> Result<T>,
) -> Result<T> {
    if needed.is_empty() {
        return work(&[]);
    }
    let before = live_servers(workspace)?;
    let wanted = Wanted { durable, ..Wanted::default() };
    let started = up(workspace, needed, wanted).context("this cannot run without its servers");
    let outcome = started.and_then(|running| work(&running));
    // After a failed start too: some of them may be up.
    let ours: Vec<Server> =
        with_upstreams(needed).into_iter().filter(|server| !before.contains(server)).collect();
    let stopped = if ours.is_empty() { Ok(()) } else { down(workspace, &ours, false) };
    let value = outcome?;
    stopped.map(|()| value)
}

/// The servers of this checkout that run now.
///
/// # Errors
/// A record that cannot be read.
pub fn live_servers(workspace: &Path) -> Result<Vec<Server>> {
    let cache = Cache::open(workspace)?;
    let mut servers = Vec::new();
    for server in Server::ALL {
        let record = Record::read(&cache.server_directory(server)?)?;
        if record.is_some_and(|record| record.endpoint.live_process().is_some()) {
            servers.push(server);
        }
    }
    Ok(servers)
}

/// Prints `export` lines for the servers that are up.
///
/// # Errors
/// The error names the servers that are not up, after the lines of the others.
pub fn print_env(workspace: &Path, servers: &[Server]) -> Result<()> {
    let cache = Cache::open(workspace)?;
    let mut missing = Vec::new();
    for server in servers {
        let record = Record::read(&cache.server_directory(*server)?)?;
        let url = given_url(*server, record.as_ref(), &process_environment).or_else(|| {
            let running = record.filter(|record| record.endpoint.live_process().is_some());
            running.map(|record| record.endpoint.url)
        });
        match url {
            Some(url) => println!("export {}={}", server.variable(), shell_quoted(&url)),
            None => missing.push(server.name()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Endpoint;

    #[test]
    fn a_url_is_quoted_for_the_shell() {
        assert_eq!(shell_quoted("mongodb://h/?a=b&c=d"), "'mongodb://h/?a=b&c=d'");
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_pooler_comes_with_the_server_behind_it() {
        assert_eq!(with_upstreams(&[Server::Pgbouncer]), [Server::Postgres, Server::Pgbouncer]);
        assert_eq!(with_upstreams(&Server::ALL), Server::ALL);
        assert_eq!(with_upstreams(&[Server::Mysql]), [Server::Mysql]);
    }

    #[test]
    fn our_own_url_in_the_environment_is_not_one_of_the_users() {
        let endpoint = Endpoint { process: None, url: "mysql://ours".into() };
        let record = Record { endpoint, port: 1, durable: false, upstream: None };
        let given = |url: &'static str| given_url(Server::Mysql, Some(&record), &move |_| Some(url.into()));
        assert_eq!(given("mysql://ours"), None);
        assert_eq!(given(""), None);
        assert_eq!(given("mysql://theirs").as_deref(), Some("mysql://theirs"));
    }

    #[test]
    fn a_url_of_another_kind_is_refused_before_anybody_is_asked() {
        for (server, url) in [
            (Server::Postgres, "mysql://db/x"),
            (Server::Mongodb, "app:secret@db/x"),
            (Server::Mysql, "http://db/x"),
        ] {
            let error = given_version(server, url).unwrap_err().to_string();
            assert!(error.starts_with(&format!("a URL for {server} begins with ")), "{error}");
        }
    }

    #[test]
    fn a_summary_names_version_url_and_seconds_but_no_password() {
        let running = Running {
            server: Server::Postgres,
            url: "postgres://app:secret@db:5432/x".into(),
            origin: Origin::Given,
            version: "15.18".into(),
            took: Duration::from_millis(120),
        };
        assert_eq!(
            summary(&running),
            "postgres  15.18  postgres://app:***@db:5432/x  0.1 s  \
             (given by RATCHET_TEST_POSTGRES_URL)"
        );
    }
}
