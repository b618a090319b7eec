//! What is found out when a store is opened: on a server of its own, which asks for a password and is no replica set.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use ratchet_api::{StoreError, StoreErrorKind};
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};
use tempfile::TempDir;

/// A server without a replica set, which ends with the test.
struct Alone {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Alone {
    /// Runs the program of the server that the tests have.
    async fn start() -> Self {
        let url = ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"));
        let other = Client::with_uri_str(&url).await.expect("a URL").database("admin");
        let status = other.run_command(doc! { "serverStatus": 1 }).await.expect("the server answers");
        let process = PathBuf::from(format!("/proc/{}", status.get_i64("pid").expect("a number")));
        let program = process.join("exe").read_link().expect("the server is on this machine");
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        let libraries =
            environment.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"LD_LIBRARY_PATH="));
        let folder = TempDir::new().expect("a folder");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let mut command = Command::new(program);
        if let Some(libraries) = libraries {
            command.env("LD_LIBRARY_PATH", String::from_utf8_lossy(libraries).as_ref());
        }
        command.args([
            "--auth",
            "--nounixsocket",
            "--bind_ip",
            "127.0.0.1",
            "--wiredTigerCacheSizeGB",
            "0.25",
        ]);
        command.arg("--dbpath").arg(folder.path()).args(["--port", &port.to_string()]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let alone = Self { process, port, _folder: folder };
        let answers = async {
            let stranger = alone.admin("").await;
            while stranger.run_command(doc! { "ping": 1 }).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), answers).await.expect("it answers");
        alone
    }

    fn url(&self, login: &str) -> String {
        format!("mongodb://{login}127.0.0.1:{}/?authSource=admin&serverSelectionTimeoutMS=5000", self.port)
    }

    async fn admin(&self, login: &str) -> Database {
        Client::with_uri_str(self.url(login)).await.expect("a URL").database("admin")
    }

    async fn refuses(&self, login: &str, migrate: bool) -> StoreError {
        let options = MongoOptions { database: "jobs".to_owned(), migrate, ..MongoOptions::default() };
        let refused = MongoStore::connect(&self.url(login), options).await;
        let Err(error) = refused else { panic!("the store opens") };
        let whole = format!("{error} {error:?}");
        assert!(!whole.contains("hidden") && !whole.contains("s3cret"), "{whole}");
        error
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}

fn user(name: &str, roles: &[Document]) -> Document {
    doc! { "createUser": name, "pwd": "s3cret", "roles": roles }
}

#[tokio::test]
async fn what_a_server_or_a_user_lacks_is_named_with_the_fix() {
    let server = Alone::start().await;
    // As long as there is no user, whoever comes from this machine may make the first.
    let root = user("hidden_root", &[doc! { "role": "root", "db": "admin" }]);
    server.admin("").await.run_command(root).await.expect("a user is made");
    let admin = server.admin("hidden_root:s3cret@").await;
    let on_jobs = |role: &str| doc! { "role": role, "db": "jobs" };
    admin.run_command(user("hidden_reader", &[on_jobs("read")])).await.expect("a user is made");
    admin.run_command(user("hidden_writer", &[on_jobs("readWrite")])).await.expect("a user is made");

    let error = server.refuses("hidden_writer:s3cret@", true).await;
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    assert!(error.to_string().contains("run it as a replica set, also with one member"), "{error}");

    let error = server.refuses("hidden_reader:s3cret@", false).await;
    assert_eq!(error.kind(), StoreErrorKind::Other);
    let said = error.to_string();
    assert!(said.contains("lacks rights: insert, update, remove on scheduler_job,"), "{said}");
    assert!(said.contains("give it the role `readWrite` on the database"), "{said}");

    let error = server.refuses("hidden_writer:wrong@", false).await;
    assert!(error.to_string().contains("refuses the user or its password; check both in the URL"), "{error}");
    let error = server.refuses("", false).await;
    assert!(error.to_string().contains("lacks a right; give it the role `readWrite`"), "{error}");
}
