//! MongoDB: its version, and its replica set.

use std::time::Duration;

use anyhow::Result;
use mongodb::{
    Client, Database,
    bson::{Bson, Document, doc},
    error::{Error, ErrorKind},
    options::ClientOptions,
};

use super::{TIMEOUT, ask};

/// Error code of a server that already has the configuration of a replica set.
const ALREADY_INITIALIZED: i32 = 23;
/// Time for the election of a primary, and for new members to copy its data.
const ELECTION_LIMIT: Duration = Duration::from_secs(30);
/// Settings of a set with several members: a dead primary is replaced after two seconds instead of eleven.
const ELECTION_TIMEOUT_MS: i32 = 1_000;
const HEARTBEAT_INTERVAL_MS: i32 = 250;
/// `state` of a member that has the data: primary, secondary.
const IN_SYNC: [i32; 2] = [1, 2];

/// Logs in and returns the version of the server.
pub(crate) fn version(url: &str) -> Result<String> {
    // The driver's own timeout comes first: its error says more.
    ask(TIMEOUT * 2, async {
        let reply = admin(options(url).await?)?.run_command(doc! { "buildInfo": 1 }).await?;
        Ok(reply.get_str("version").unwrap_or("unknown").to_owned())
    })
}

/// Makes the servers of this URL the members of the replica set `name` and waits until one accepts writes and all
/// others have its data. The data of the first server is used; the others must be empty.
pub(crate) fn ensure_replica_set(url: &str, name: &str, durable: bool) -> Result<()> {
    ask(ELECTION_LIMIT, async {
        let mut options = options(url).await?;
        let members: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
        // The driver must talk to a server that is in no replica set yet.
        options.direct_connection = Some(true);
        options.repl_set_name = None;
        options.hosts.truncate(1);
        let admin = admin(options)?;
        loop {
            let hello = admin.run_command(doc! { "hello": 1 }).await?;
            // Checked again each time: a server that has just started may not have read its old configuration yet, and
            // finds only then that its address in it has changed.
            if !has_members(&hello, &members) {
                form_replica_set(&admin, &configuration(name, &members, durable)).await?;
            } else if hello.contains_key("primary") && all_in_sync(&admin).await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Whether the replica set consists of these servers.
fn has_members(hello: &Document, members: &[String]) -> bool {
    let Ok(hosts) = hello.get_array("hosts") else { return false };
    hosts.len() == members.len()
        && hosts.iter().all(|host| members.iter().any(|member| host.as_str() == Some(member)))
}

async fn all_in_sync(admin: &Database) -> Result<bool, Error> {
    let status = admin.run_command(doc! { "replSetGetStatus": 1 }).await?;
    let members = status.get_array("members").map(Vec::as_slice).unwrap_or_default();
    let in_sync = |member: &Bson| {
        let state = member.as_document().and_then(|member| member.get_i32("state").ok());
        state.is_some_and(|state| IN_SYNC.contains(&state))
    };
    Ok(members.iter().all(in_sync))
}

/// Initiates the replica set. A server whose data already belongs to it is given its new address, because the port may
/// have changed since it last ran, or other members.
async fn form_replica_set(admin: &Database, configuration: &Document) -> Result<(), Error> {
    match admin.run_command(doc! { "replSetInitiate": configuration }).await {
        Err(error) if is_already_initialized(&error) => {
            let command = doc! { "replSetReconfig": configuration, "force": true };
            admin.run_command(command).await.map(drop)
        }
        reply => reply.map(drop),
    }
}

fn configuration(name: &str, members: &[String], durable: bool) -> Document {
    let numbered = |(number, host): (i32, &String)| doc! { "_id": number, "host": host };
    doc! {
        "_id": name,
        "version": 1,
        "writeConcernMajorityJournalDefault": durable,
        "members": (0..).zip(members).map(numbered).collect::<Vec<_>>(),
        "settings": {
            "electionTimeoutMillis": ELECTION_TIMEOUT_MS, "heartbeatIntervalMillis": HEARTBEAT_INTERVAL_MS,
        },
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
