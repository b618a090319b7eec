//! Two PostgreSQL servers: a primary, and a synchronous standby that takes over when the primary is killed.

use std::fs::{File, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::fleet::signal;
use crate::ledger::now;
use crate::proxy::Proxy;

const USER: &str = "ratchet";
const DATABASE: &str = "postgres";
/// The name of every standby; there is one at a time.
const STANDBY: &str = "standby";
const WAIT_FOR_STANDBY: &str = "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby)'";
/// The most time for a server to start, to follow or to take over.
const PATIENCE: Duration = Duration::from_secs(60);

/// A primary and its standby, in a folder that is removed with them.
pub(crate) struct Cluster {
    programs: Programs,
    folder: TempDir,
    primary: Server,
    standby: Server,
    made: usize,
}

/// A server process, which ends with this process.
struct Server {
    port: u16,
    data: PathBuf,
    process: Child,
}

/// The programs of PostgreSQL, and the account that runs them: not root.
struct Programs {
    folder: PathBuf,
    user: u32,
    group: u32,
}

impl Cluster {
    /// Starts two servers with the programs of the server at this URL, which must be on this machine.
    pub(crate) async fn start(url: &str) -> Result<Self> {
        let programs = Programs::of(url).await.context("failover needs a PostgreSQL on this machine")?;
        let folder = tempfile::Builder::new().prefix("ratchet-failover-").tempdir()?;
        chown(folder.path(), Some(programs.user), Some(programs.group))?;
        let data = folder.path().join("server-1");
        let mut initdb = programs.command("initdb", folder.path());
        initdb.arg("-D").arg(&data).args(["--username", USER]);
        succeed(initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])).await?;
        let primary = programs.serve(folder.path(), data).await?;
        let standby = follow(&programs, folder.path(), &primary, 2).await?;
        Ok(Self { programs, folder, primary, standby, made: 2 })
    }

    /// The port of the primary.
    pub(crate) const fn port(&self) -> u16 {
        self.primary.port
    }

    /// The URL of the primary through a proxy at this port.
    pub(crate) fn url(port: u16) -> String {
        format!("postgres://{USER}@127.0.0.1:{port}/{DATABASE}")
    }

    /// Kills the primary, points the proxy at the standby, promotes that after `reading`, in which it is read-only, and
    /// starts a standby for it. Returns the time of the promotion.
    pub(crate) async fn fail_over(&mut self, proxy: &Proxy, reading: Duration) -> Result<i64> {
        self.primary.kill().await?;
        proxy.lead_to(self.standby.port);
        sleep(reading).await;
        let promoted: bool = sqlx::query_scalar("SELECT pg_promote()")
            .fetch_one(&mut self.standby.connection().await?)
            .await?;
        ensure!(promoted, "the standby was not promoted in time");
        let promoted = now();
        self.made += 1;
        // The old primary is gone for good; none of its files may be needed.
        tokio::fs::remove_dir_all(&self.primary.data).await?;
        let next = follow(&self.programs, self.folder.path(), &self.standby, self.made).await?;
        self.primary = std::mem::replace(&mut self.standby, next);
        Ok(promoted)
    }

    pub(crate) async fn stop(&mut self) -> Result<()> {
        for server in [&mut self.primary, &mut self.standby] {
            signal("QUIT", &server.pid()?.to_string()).await?;
            timeout(PATIENCE, server.process.wait()).await??;
        }
        Ok(())
    }
}

/// Makes a standby of a server, and has every commit wait for it.
async fn follow(programs: &Programs, folder: &Path, primary: &Server, number: usize) -> Result<Server> {
    let data = folder.join(format!("server-{number}"));
    let source = format!("host=127.0.0.1 port={} user={USER} application_name={STANDBY}", primary.port);
    let mut copy = programs.command("pg_basebackup", folder);
    copy.args(["-d", &source, "-S", STANDBY]).arg("-D").arg(&data);
    copy.args(["--write-recovery-conf", "--create-slot", "--wal-method=stream"]);
    succeed(copy.args(["--checkpoint=fast", "--no-sync"])).await?;
    let standby = programs.serve(folder, data).await?;
    // The copy has the settings of its source; once promoted, it has no standby yet.
    standby.run("ALTER SYSTEM RESET synchronous_standby_names").await?;
    standby.run("SELECT pg_reload_conf()").await?;
    primary.run(WAIT_FOR_STANDBY).await?;
    primary.run("SELECT pg_reload_conf()").await?;
    let mut connection = primary.connection().await?;
    let mut written: Option<String> = None;
    let followed = async {
        loop {
            let synchronous: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND sync_state = 'sync'
                    AND flush_lsn >= coalesce($2::text::pg_lsn, flush_lsn))",
            )
            .bind(STANDBY)
            .bind(written.as_deref())
            .fetch_one(&mut connection)
            .await?;
            match (synchronous, &written) {
                // Commits from before the standby was waited for must reach it as well.
                (true, None) => {
                    let here = sqlx::query_scalar("SELECT pg_current_wal_flush_lsn()::text");
                    written = here.fetch_one(&mut connection).await?;
                }
                (true, Some(_)) => return Ok(standby),
                (false, _) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    timeout(PATIENCE, followed).await.context("the standby does not follow")?
}

impl Server {
    fn pid(&self) -> Result<u32> {
        self.process.id().context("a server of PostgreSQL has ended by itself; see its log")
    }

    async fn connection(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&Cluster::url(self.port)).await?)
    }

    async fn run(&self, statement: &'static str) -> Result<()> {
        sqlx::raw_sql(statement).execute(&mut self.connection().await?).await?;
        Ok(())
    }

    /// Sends SIGKILL to the server and to every process that it started.
    async fn kill(&mut self) -> Result<()> {
        let pid = self.pid()?;
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        signal("KILL", &pid.to_string()).await?;
        for child in children.split_whitespace() {
            // Some end by themselves when the first one is gone.
            let _ = signal("KILL", child).await;
        }
        self.process.wait().await?;
        Ok(())
    }
}

impl Programs {
    async fn of(url: &str) -> Result<Self> {
        let server: PgConnectOptions = url.parse()?;
        let mut connection = PgConnection::connect_with(&server).await?;
        let (pid, folder): (i32, String) =
            sqlx::query_as("SELECT pg_backend_pid(), setting FROM pg_config WHERE name = 'BINDIR'")
                .fetch_one(&mut connection)
                .await?;
        let process = std::fs::metadata(format!("/proc/{pid}"))?;
        let folder = PathBuf::from(folder);
        ensure!(folder.join("pg_basebackup").is_file(), "there is no pg_basebackup in {}", folder.display());
        Ok(Self { folder, user: process.uid(), group: process.gid() })
    }

    /// A command for a program that runs in a folder.
    fn command(&self, program: &str, folder: &Path) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.current_dir(folder).uid(self.user).gid(self.group).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts a server and waits until it answers.
    async fn serve(&self, folder: &Path, data: PathBuf) -> Result<Server> {
        std::fs::set_permissions(&data, Permissions::from_mode(0o700))?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = File::options().create(true).append(true).open(folder.join(format!("{name}.log")))?;
        let mut command = self.command("postgres", folder);
        command.stdout(log.try_clone()?).stderr(log);
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=200",
            "shared_buffers=64MB",
            "wal_retrieve_retry_interval=200ms",
            // Only processes are killed, not the machine.
            "fsync=off",
        ] {
            command.args(["-c", setting]);
        }
        let process = command.spawn().context("cannot start a server of PostgreSQL")?;
        let server = Server { port, data, process };
        let answers = async {
            while server.connection().await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, answers).await.with_context(|| format!("{name} does not answer"))?;
        Ok(server)
    }
}

async fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
    Ok(())
}
