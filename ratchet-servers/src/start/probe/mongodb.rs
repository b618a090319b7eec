//! MongoDB: its version, and the replica set with one member.

use std::time::Duration;

use anyhow::Result;
use mongodb::{
    Client, Database,
    bson::{Document, doc},
    error::{Error, ErrorKind},
    options::ClientOptions,
};

use super::{TIMEOUT, ask};

/// Error code of a server that already has the configuration of a replica set.
const ALREADY_INITIALIZED: i32 = 23;
/// Time for the election of the only member.
const ELECTION_LIMIT: Duration = Duration::from_secs(30);

/// Logs in and returns the version of the server.
pub(crate) fn version(url: &str) -> Result<String> {
    // The driver's own timeout comes first: its error says more.
    ask(TIMEOUT * 2, async {
        let reply = admin(options(url).await?)?.run_command(doc! { "buildInfo": 1 }).await?;
        Ok(reply.get_str("version").unwrap_or("unknown").to_owned())
    })
}

/// Makes the server the only member of the replica set `name` and waits until it takes writes.
pub(crate) fn ensure_primary(url: &str, name: &str, durable: bool) -> Result<()> {
    ask(ELECTION_LIMIT, async {
        let mut options = options(url).await?;
        let address = options.hosts.first().map(ToString::to_string).unwrap_or_default();
        // The driver must talk to a server that is in no replica set yet.
        options.direct_connection = Some(true);
        options.repl_set_name = None;
        let admin = admin(options)?;
        loop {
            let hello = admin.run_command(doc! { "hello": 1 }).await?;
            if hello.get_bool("isWritablePrimary").unwrap_or(false) {
                return Ok(());
            }
            // Checked again each time: a server that has just started may not have read its old configuration yet, and
            // finds only then that its address in it has changed.
            if !hello.contains_key("setName") {
                form_replica_set(&admin, &configuration(name, &address, durable)).await?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Initiates the replica set. A server whose data already belongs to it is given its new address, because the port may
/// have changed since it last ran.
async fn form_replica_set(admin: &Database, configuration: &Document) -> Result<(), Error> {
    match admin.run_command(doc! { "replSetInitiate": configuration }).await {
        Err(error) if is_already_initialized(&error) => {
            let command = doc! { "replSetReconfig": configuration, "force": true };
            admin.run_command(command).await.map(drop)
        }
        reply => reply.map(drop),
    }
}

fn configuration(name: &str, address: &str, durable: bool) -> Document {
    doc! {
        "_id": name,
        "version": 1,
        "writeConcernMajorityJournalDefault": durable,
        "members": [{ "_id": 0, "host": address }],
    }
}

fn is_already_initialized(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(error) if error.code == ALREADY_INITIALIZED)
}

async fn options(url: &str) -> Result<ClientOptions> {
    let mut options = ClientOptions::parse(url).await?;
    options.server_selection_timeout = Some(TIMEOUT);
    options.connect_timeout = Some(TIMEOUT);
    Ok(options)
}

fn admin(options: ClientOptions) -> Result<Database, Error> {
    Ok(Client::with_options(options)?.database("admin"))
}
