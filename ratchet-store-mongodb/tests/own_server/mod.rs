//! A dedicated server for tests that would disturb others on the shared one.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use ratchet_servers::Server;
use tempfile::TempDir;

const REPLICA_SET: &str = "own";
const PASSWORD: &str = "s3cret";

/// The URL of the server that tests share.
pub(crate) fn url() -> String {
    ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"))
}

/// A dedicated server. It ends with the test.
pub(crate) struct OwnServer {
    command: Command,
    process: Child,
    port: u16,
    is_set: bool,
    _folder: TempDir,
}

impl OwnServer {
    /// A single server without a replica set, with passwords.
    pub(crate) async fn alone() -> Self {
        let server = Self::start(|_| vec!["--auth".to_owned()]).await;
        server.answers().await;
        server
    }

    /// A replica set of one member, with passwords or without.
    pub(crate) async fn replica_set(passwords: bool) -> Self {
        let mut server = Self::start(|folder| {
            let mut args = vec!["--replSet".to_owned(), REPLICA_SET.to_owned()];
            args.extend(passwords.then(|| ["--keyFile".to_owned(), key_file(folder)]).into_iter().flatten());
            args
        })
        .await;
        server.answers().await;
        let member = doc! { "_id": 0, "host": format!("127.0.0.1:{}", server.port) };
        let set = doc! { "_id": REPLICA_SET, "members": [member] };
        server.admin("").await.run_command(doc! { "replSetInitiate": set }).await.expect("the set begins");
        server.is_set = true;
        server.has_primary().await;
        server
    }

    /// Starts the program of the shared server, with further arguments.
    async fn start(args: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let shared = Client::with_uri_str(&url()).await.expect("a URL").database("admin");
        let status = shared.run_command(doc! { "serverStatus": 1 }).await.expect("the server answers");
        let process = u32::try_from(status.get_i64("pid").expect("a number")).expect("a process");
        let folder = TempDir::new().expect("a folder");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let mut command = ratchet_servers::program_of(process).expect("the server is on this machine");
        command.args(["--nounixsocket", "--bind_ip", "127.0.0.1", "--wiredTigerCacheSizeGB", "0.25"]);
        command.arg("--dbpath").arg(folder.path()).args(["--port", &port.to_string()]);
        command.args(args(folder.path())).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("it starts");
        Self { command, process, port, is_set: false, _folder: folder }
    }

    /// Kills it and starts it again with the same data.
    pub(crate) async fn crash(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
        self.process = self.command.spawn().expect("it starts");
        self.has_primary().await;
    }

    /// The URL of this server. `login` is empty or ends with an `@`.
    pub(crate) fn url(&self, login: &str) -> String {
        let set = if self.is_set {
            format!("replicaSet={REPLICA_SET}")
        } else {
            "directConnection=true".to_owned()
        };
        format!(
            "mongodb://{login}127.0.0.1:{}/?authSource=admin&serverSelectionTimeoutMS=5000&{set}",
            self.port
        )
    }

    pub(crate) async fn admin(&self, login: &str) -> Database {
        Client::with_uri_str(self.url(login)).await.expect("a URL").database("admin")
    }

    /// Creates the first user, possible while there is none, with all rights; returns the login.
    pub(crate) async fn make_root(&self) -> String {
        let root = user("hidden_root", &[doc! { "role": "root", "db": "admin" }]);
        self.admin("").await.run_command(root).await.expect("a user is made");
        login("hidden_root")
    }

    async fn answers(&self) {
        self.until(|_| true).await;
    }

    /// Waits until it accepts writes.
    pub(crate) async fn has_primary(&self) {
        self.until(|hello| hello.get_bool("isWritablePrimary").unwrap_or_default()).await;
    }

    async fn until(&self, is_ready: impl Fn(&Document) -> bool) {
        let direct = format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port);
        let server = Client::with_uri_str(direct).await.expect("a URL").database("admin");
        let ready = async {
            while !server.run_command(doc! { "hello": 1 }).await.is_ok_and(|hello| is_ready(&hello)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ready).await.expect("it is ready");
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}

/// The command that makes a user.
pub(crate) fn user(name: &str, roles: &[Document]) -> Document {
    doc! { "createUser": name, "pwd": PASSWORD, "roles": roles }
}

/// The part of a URL before the host.
pub(crate) fn login(name: &str) -> String {
    format!("{name}:{PASSWORD}@")
}

/// The key file by which the members of a set authenticate each other; the server refuses one that others may read.
fn key_file(folder: &Path) -> String {
    let file = folder.join("key");
    std::fs::write(&file, "ratchet").expect("there is room");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    file.to_string_lossy().into_owned()
}
