//! The lookup of servers by tests.

use std::path::{Path, PathBuf};

use crate::{
    Server,
    checkout::{Checkout, Environment, non_empty, process_environment, workspace_root},
    record::{self, Endpoint},
};

/// The URL of a server for tests and benchmarks.
///
/// The environment variable of the server decides. Without it, the server that `cargo xtask servers up` started for
/// this checkout is used, if its process is alive.
///
/// # Errors
/// Neither of them exists. The message says which variable to set and which command to run.
pub fn url(server: Server) -> Result<String, NoServer> {
    find(server, &process_environment, std::env::current_dir().ok())
}

/// No server was found for a test.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not set and no {server} server of {} is running: run `cargo xtask servers up {server}`, or set the \
     variable to the URL of a server of your own",
    server.variable(),
    checkout.as_deref().map_or_else(|| "this checkout".into(), Path::to_string_lossy),
)]
pub struct NoServer {
    server: Server,
    checkout: Option<PathBuf>,
}

fn find(server: Server, environment: Environment<'_>, current: Option<PathBuf>) -> Result<String, NoServer> {
    if let Some(url) = non_empty(environment, server.variable()) {
        return Ok(url.to_string_lossy().into_owned());
    }
    let workspace = workspace_root(environment, current);
    let checkout = workspace.as_deref().and_then(|workspace| Checkout::new(environment, workspace));
    checkout
        .and_then(|checkout| record::read::<Endpoint>(&checkout.server_directory(server)))
        .filter(|endpoint| endpoint.live_process().is_some())
        .map(|endpoint| endpoint.url)
        .ok_or(NoServer { server, checkout: workspace })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, fs};

    use tempfile::TempDir;

    use super::*;
    use crate::process_id::ProcessId;

    /// A checkout with a cache, in which PostgreSQL is recorded with this process.
    struct Fixture {
        root: TempDir,
        given: Option<&'static str>,
    }

    impl Fixture {
        fn with_record(process: Option<ProcessId>) -> Self {
            let fixture = Self { root: tempfile::tempdir().unwrap(), given: None };
            fs::create_dir_all(fixture.workspace().join("ratchet-suite")).unwrap();
            fs::write(fixture.workspace().join("Cargo.lock"), "").unwrap();
            let checkout = Checkout::new(&|name| fixture.variable(name), &fixture.workspace()).unwrap();
            let directory = checkout.server_directory(Server::Postgres);
            fs::create_dir_all(&directory).unwrap();
            let endpoint = Endpoint { process, url: "postgres://recorded".into() };
            fs::write(directory.join(record::FILE), serde_json::to_vec(&endpoint).unwrap()).unwrap();
            fixture
        }

        fn running() -> Self {
            Self::with_record(ProcessId::of(std::process::id()))
        }

        fn workspace(&self) -> PathBuf {
            self.root.path().join("checkout")
        }

        fn variable(&self, name: &str) -> Option<OsString> {
            match name {
                "RATCHET_CACHE" => Some(self.root.path().join("cache").into()),
                "CARGO_MANIFEST_DIR" => Some(self.workspace().join("ratchet-suite").into()),
                "RATCHET_TEST_POSTGRES_URL" => self.given.map(Into::into),
                _ => None,
            }
        }

        fn find(&self, server: Server) -> Result<String, NoServer> {
            find(server, &|name| self.variable(name), None)
        }
    }

    #[test]
    fn the_variable_comes_before_the_record() {
        let mut fixture = Fixture::running();
        fixture.given = Some("postgres://given");
        assert_eq!(fixture.find(Server::Postgres).as_deref(), Ok("postgres://given"));
    }

    #[test]
    fn a_running_server_of_the_checkout_is_found_without_a_variable() {
        let mut fixture = Fixture::running();
        assert_eq!(fixture.find(Server::Postgres).as_deref(), Ok("postgres://recorded"));
        fixture.given = Some("");
        assert_eq!(fixture.find(Server::Postgres).as_deref(), Ok("postgres://recorded"));
    }

    #[test]
    fn a_server_that_was_stopped_or_died_is_not_found() {
        let me = ProcessId::of(std::process::id()).unwrap();
        for process in [None, Some(me.impostor())] {
            let fixture = Fixture::with_record(process);
            assert!(fixture.find(Server::Postgres).is_err());
        }
    }

    #[test]
    fn the_server_of_another_checkout_is_not_found() {
        let fixture = Fixture::running();
        let other = fixture.root.path().join("other");
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("Cargo.lock"), "").unwrap();
        let environment = |name: &str| match name {
            "CARGO_MANIFEST_DIR" => Some(other.clone().into()),
            _ => fixture.variable(name),
        };
        assert!(find(Server::Postgres, &environment, None).is_err());
    }

    #[test]
    fn the_error_names_the_variable_the_command_and_the_checkout() {
        let fixture = Fixture::running();
        let error = fixture.find(Server::Mongodb).unwrap_err().to_string();
        assert!(error.starts_with("RATCHET_TEST_MONGODB_URL is not set"), "{error}");
        assert!(error.contains("`cargo xtask servers up mongodb`"), "{error}");
        assert!(error.contains(&*fixture.workspace().to_string_lossy()), "{error}");
    }
}
