//! A MongoDB replica set whose members may be killed: real processes with ports and data of their own.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ratchet_store_mongodb::mongodb::bson::doc;
use ratchet_store_mongodb::mongodb::options::ClientOptions;
use ratchet_store_mongodb::mongodb::{Client, Database};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::fleet::signal;
use crate::ledger::now;

const NAME: &str = "torture";
/// The most time for a member to start, to join or to be elected on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// A setting for tests: a dead primary is replaced after two seconds instead of eleven.
const ELECTION_TIMEOUT_MS: i32 = 1_000;
const HEARTBEAT_INTERVAL_MS: i32 = 250;
/// For how long a member that stepped down cannot be elected again, and how long others may take to catch up before.
const STEPPED_DOWN_SECS: i32 = 2;
const CATCH_UP_SECS: i32 = 1;

/// The members, in a folder that is removed with them.
pub(crate) struct ReplicaSet {
    /// The process whose program the members run.
    mongod: u32,
    folder: TempDir,
    members: Vec<Member>,
}

/// A member process, which ends with this process.
struct Member {
    port: u16,
    /// `None` while it is dead.
    process: Option<Child>,
    /// A direct connection to this member, whatever its role in the set.
    admin: Database,
}

impl ReplicaSet {
    /// Starts the members with the program of the server at this URL, which must be on this machine.
    pub(crate) async fn start(url: &str, members: usize) -> Result<Self> {
        let mongod = process_of(url).await.context("this needs a MongoDB on this machine")?;
        let folder = tempfile::Builder::new().prefix("ratchet-replica-set-").tempdir()?;
        let mut set = Self { mongod, folder, members: Vec::new() };
        for _ in 0..members {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            let process = Some(serve(mongod, set.folder.path(), port)?);
            set.members.push(Member { port, process, admin: Member::connect(port).await? });
        }
        let numbered = |(number, member): (i32, &Member)| doc! { "_id": number, "host": member.address() };
        let configuration = doc! {
            "_id": NAME,
            "members": (0..).zip(&set.members).map(numbered).collect::<Vec<_>>(),
            "settings": {
                "electionTimeoutMillis": ELECTION_TIMEOUT_MS, "heartbeatIntervalMillis": HEARTBEAT_INTERVAL_MS,
            },
        };
        set.when("a member does not answer", |states| !states.contains(&State::Silent)).await?;
        set.members[0].admin.run_command(doc! { "replSetInitiate": configuration }).await?;
        set.whole().await?;
        Ok(set)
    }

    /// The URL that names every member.
    pub(crate) fn url(&self) -> String {
        let addresses: Vec<String> = self.members.iter().map(Member::address).collect();
        format!("mongodb://{}/?replicaSet={NAME}", addresses.join(","))
    }

    /// Sends SIGKILL to the primary. Another member is elected, then the killed one starts again and joins; if there is
    /// no other, it starts at once. Returns the time when writes were accepted again.
    pub(crate) async fn kill_primary(&mut self) -> Result<i64> {
        let victim = self.whole().await?;
        self.members[victim].kill().await?;
        let mut elected = None;
        if self.members.len() > 1 {
            self.primary().await?;
            elected = Some(now());
        }
        let port = self.members[victim].port;
        self.members[victim].process = Some(serve(self.mongod, self.folder.path(), port)?);
        self.whole().await?;
        Ok(elected.unwrap_or_else(now))
    }

    /// Tells the primary to step down. Returns the time when another member accepted writes.
    pub(crate) async fn step_down(&mut self) -> Result<i64> {
        let command =
            doc! { "replSetStepDown": STEPPED_DOWN_SECS, "secondaryCatchUpPeriodSecs": CATCH_UP_SECS };
        let told = async {
            loop {
                let primary = self.whole().await?;
                match self.members[primary].admin.run_command(command.clone()).await {
                    Ok(_) => return self.primary().await,
                    // No member has caught up in time, or another member was elected meanwhile.
                    Err(_) => eprintln!("\nthe primary does not step down yet"),
                }
            }
        };
        timeout(PATIENCE, told).await.context("no primary steps down")??;
        Ok(now())
    }

    /// Ends every member.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.kill().await?;
        }
        Ok(())
    }

    /// Waits for a primary and returns its number.
    async fn primary(&self) -> Result<usize> {
        self.primary_when("no member is elected", |_| true).await
    }

    /// Waits until every member has the data; returns the number of the primary. A member that rolls back is neither
    /// primary nor secondary meanwhile: a set of three that then loses another member has no majority.
    async fn whole(&self) -> Result<usize> {
        let whole =
            |states: &[State]| states.iter().all(|state| matches!(state, State::Secondary | State::Primary));
        self.primary_when("a member does not join", whole).await
    }

    /// Waits until there is a primary and the states are as wanted; returns the number of the primary.
    async fn primary_when(&self, else_wrong: &str, wanted: impl Fn(&[State]) -> bool) -> Result<usize> {
        let is_primary = |state: &State| *state == State::Primary;
        let states = self.when(else_wrong, |states| states.iter().any(is_primary) && wanted(states)).await?;
        states.iter().position(is_primary).context("no primary")
    }

    /// Polls every member until the states are as wanted.
    async fn when(&self, else_wrong: &str, wanted: impl Fn(&[State]) -> bool) -> Result<Vec<State>> {
        let begun = Instant::now();
        loop {
            let mut states = Vec::new();
            for member in &self.members {
                states.push(member.state().await);
            }
            if wanted(&states) {
                return Ok(states);
            }
            ensure!(begun.elapsed() < PATIENCE, "{else_wrong}: the members are {states:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The role of a member in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Killed by this run.
    Killed,
    Silent,
    /// Running, but without a role yet.
    Starting,
    Secondary,
    Primary,
}

impl Member {
    async fn connect(port: u16) -> Result<Database> {
        let mut options =
            ClientOptions::parse(format!("mongodb://127.0.0.1:{port}/?directConnection=true")).await?;
        options.server_selection_timeout = Some(Duration::from_secs(1));
        Ok(Client::with_options(options)?.database("admin"))
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    async fn state(&self) -> State {
        if self.process.is_none() {
            return State::Killed;
        }
        let Ok(hello) = self.admin.run_command(doc! { "hello": 1 }).await else { return State::Silent };
        let is = |part| hello.get_bool(part).unwrap_or_default();
        match (is("isWritablePrimary"), is("secondary")) {
            (true, _) => State::Primary,
            (_, true) => State::Secondary,
            _ => State::Starting,
        }
    }

    async fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("a member is dead already")?;
        let pid = process.id().context("a member of the replica set has ended by itself; see its log")?;
        signal("KILL", &pid.to_string()).await?;
        process.wait().await?;
        Ok(())
    }
}

/// The process id of the server at this URL.
async fn process_of(url: &str) -> Result<u32> {
    let admin = Client::with_uri_str(url).await?.database("admin");
    let pid = u32::try_from(admin.run_command(doc! { "serverStatus": 1 }).await?.get_i64("pid")?)?;
    // The number may belong to another machine.
    let program = ratchet_servers::program_of(pid)?;
    ensure!(Path::new(program.get_program()).ends_with("mongod"), "the server is not on this machine");
    Ok(pid)
}

/// Starts a member, on its earlier data if it ran before.
fn serve(mongod: u32, folder: &Path, port: u16) -> Result<Child> {
    let data = folder.join(format!("data-{port}"));
    std::fs::create_dir_all(&data)?;
    let log = File::options().create(true).append(true).open(folder.join(format!("{port}.log")))?;
    let mut command = Command::from(ratchet_servers::program_of(mongod)?);
    command.args(["--replSet", NAME, "--bind_ip", "127.0.0.1", "--nounixsocket"]);
    command.args(["--port", &port.to_string()]).arg("--dbpath").arg(&data);
    command.args(["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "990"]);
    command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
    command.spawn().context("cannot start a member of a replica set")
}
