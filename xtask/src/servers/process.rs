//! Starting servers so that they outlive us, and ending exactly the ones that we started.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::{fs::MetadataExt, fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::screen::tail;

/// How long a server may take to stop in good order before it is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process, told apart from a later one that was given the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    born: String,
}

impl ProcessId {
    /// The process that has this number now, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        born(pid).map(|born| Self { pid, born })
    }

    /// Whether this very process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        born(self.pid).as_ref() == Some(&self.born)
    }

    /// Asks the process to end, waits, and kills it when it does not listen.
    ///
    /// Returns whether it ended in good order.
    pub(crate) fn stop(&self, signal: &str) -> Result<bool> {
        self.signal(signal)?;
        if self.gone_within(PATIENCE) {
            return Ok(true);
        }
        self.signal("KILL")?;
        if self.gone_within(PATIENCE) {
            return Ok(false);
        }
        bail!("process {} does not end", self.pid)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        // The shell's own `kill`: the program is not on every machine.
        let status = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\" 2>/dev/null", "sh", signal])
            .arg(self.pid.to_string())
            .stdin(Stdio::null())
            .status()
            .context("cannot run sh")?;
        if !status.success() && self.is_alive() {
            bail!("cannot send SIG{signal} to process {}", self.pid);
        }
        Ok(())
    }

    fn gone_within(&self, limit: Duration) -> bool {
        let begun = Instant::now();
        while self.is_alive() {
            if begun.elapsed() > limit {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// When the process was born, in words that no two processes with one number share.
///
/// An ended process that its parent has not yet asked about counts as gone.
fn born(pid: u32) -> Option<String> {
    if !Path::new("/proc/self/stat").exists() {
        // No /proc on this system (macOS): `ps` knows, to the second.
        let out = Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        return (!text.is_empty()).then_some(text);
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = start_ticks(&stat)?;
    Some(format!("{} {ticks}", boot_id()))
}

/// The start time in a line of `/proc/<pid>/stat`, unless the process has ended.
fn start_ticks(stat: &str) -> Option<&str> {
    // The name in parentheses may hold spaces and parentheses of its own: the last one counts.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

/// Changes with every start of the machine; empty where the system does not tell.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// An account that a server runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Looks an account up by name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let ask = |flag: &str| -> Option<u32> {
            let out = Command::new("id").args([flag, name]).stderr(Stdio::null()).output().ok()?;
            String::from_utf8_lossy(&out.stdout).trim().parse().ok()
        };
        Some(Self { uid: ask("-u")?, gid: ask("-g")? })
    }

    /// Gives a folder to this account.
    pub(crate) fn own(&self, folder: &Path) -> Result<()> {
        chown(folder, Some(self.uid), Some(self.gid))
            .with_context(|| format!("cannot hand {} over", folder.display()))
    }

    /// Whether this account may pass through every folder above `path` that exists.
    pub(crate) fn can_reach(&self, path: &Path) -> bool {
        path.ancestors().skip(1).filter_map(|folder| fs::metadata(folder).ok()).all(|meta| {
            let mode = meta.mode();
            (mode & 0o001 != 0)
                || (meta.uid() == self.uid && mode & 0o100 != 0)
                || (meta.gid() == self.gid && mode & 0o010 != 0)
        })
    }
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    // The owner of our own process, without a foreign call.
    match fs::metadata("/proc/self") {
        Ok(meta) => meta.uid() == 0,
        Err(_) => Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n"),
    }
}

/// A program with its arguments, not yet started.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    user: Option<User>,
    input: Option<PathBuf>,
}

impl Launch {
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            envs: Vec::new(),
            folder: None,
            user: None,
            input: None,
        }
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Another program of the same folder, with the same environment and no arguments.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        Self { program: self.program.with_file_name(name), args: Vec::new(), ..self.clone() }
    }

    /// `--name=path`
    pub(crate) fn path_arg(self, name: &str, path: &Path) -> Self {
        let mut arg = OsString::from(name);
        arg.push("=");
        arg.push(path);
        self.arg(arg)
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    pub(crate) fn user(mut self, user: Option<User>) -> Self {
        self.user = user;
        self
    }

    /// A file to read standard input from; without it there is none.
    pub(crate) fn input(mut self, file: &Path) -> Self {
        self.input = Some(file.to_owned());
        self
    }

    /// Runs to the end, writing to `log`; an error shows the end of it.
    pub(crate) fn run(&self, what: &str, log: &Path) -> Result<()> {
        let mut child = self.start(what, log)?;
        if child.wait()?.success() {
            return Ok(());
        }
        bail!("{what} failed\n  {}", tail(log, 15))
    }

    /// Starts and keeps the handle: for programs that end by themselves.
    pub(crate) fn start(&self, what: &str, log: &Path) -> Result<Child> {
        let (out, err) = log_file(log)?;
        let mut command = self.command(&self.program, &self.args)?;
        command.stdout(out).stderr(err);
        command.spawn().with_context(|| format!("{what}: cannot run {}", self.program.display()))
    }

    /// Starts a server that lives on after us, in a session of its own, writing to `log`.
    pub(crate) fn detach(&self, log: &Path) -> Result<Child> {
        let (out, err) = log_file(log)?;
        let mut command = match find_program("setsid") {
            // It becomes the program without a fork, so that the process id stays.
            Some(setsid) => {
                let mut args = vec![self.program.clone().into_os_string()];
                args.extend(self.args.iter().cloned());
                self.command(&setsid, &args)?
            }
            None => {
                let mut command = self.command(&self.program, &self.args)?;
                command.process_group(0);
                command
            }
        };
        command.stdout(out).stderr(err);
        command.spawn().with_context(|| format!("cannot run {}", self.program.display()))
    }

    fn command(&self, program: &Path, args: &[OsString]) -> Result<Command> {
        let mut command = Command::new(program);
        command.args(args).envs(self.envs.iter().map(|(name, value)| (name, value)));
        match &self.input {
            Some(path) => command.stdin(File::open(path)?),
            None => command.stdin(Stdio::null()),
        };
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        if let Some(user) = &self.user {
            command.uid(user.uid).gid(user.gid);
        }
        Ok(command)
    }
}

fn log_file(path: &Path) -> Result<(File, File)> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((file.try_clone()?, file))
}

/// Looks a program up on the search path and in the folders where servers usually lie.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    const USUAL: [&str; 7] = [
        "/usr/sbin",
        "/usr/bin",
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/libexec",
        "/opt/homebrew/bin",
        "/opt/homebrew/sbin",
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(USUAL.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// What a program prints when it is asked for its version; the error is what it says instead.
pub(crate) fn version_of(launch: &Launch) -> Result<String> {
    let asked = launch.clone().arg("--version");
    let program = asked.program.display();
    let out = asked.command(&asked.program, &asked.args)?.output();
    let out = out.with_context(|| format!("cannot run {program}"))?;
    let first =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().trim().to_owned();
    let version = first(&out.stdout);
    if !out.status.success() || version.is_empty() {
        bail!("{program} does not run: {}", first(&out.stderr));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(start_ticks(&format!("17 (mongod) {fields}")), Some("4242"));
        assert_eq!(start_ticks(&format!("17 (a ) b) {fields}")), Some("4242"));
    }

    #[test]
    fn an_ended_process_counts_as_gone() {
        let fields = "Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(start_ticks(&format!("17 (mongod) {fields}")), None);
    }

    #[test]
    fn another_process_with_the_same_number_is_not_ours() {
        let me = ProcessId::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        let impostor = ProcessId { born: "another time".into(), ..me };
        assert!(!impostor.is_alive());
        // Would end this test run if the number alone were believed.
        assert!(impostor.stop("TERM").unwrap());
    }

    #[test]
    fn a_process_is_stopped_in_good_order() {
        let log = std::env::temp_dir().join(format!("xtask-stop-{}", std::process::id()));
        let mut child = Launch::new("sleep").arg("600").detach(&log).unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        assert!(process.is_alive());
        assert!(process.stop("TERM").unwrap());
        assert!(!process.is_alive());
        child.wait().unwrap();
        fs::remove_file(log).unwrap();
    }
}
