//! Command lines: running programs to their end, and starting servers that outlive this process.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::{account::Account, progress::tail};

/// A program with its arguments, not yet started.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    program: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    account: Option<Account>,
    input: Option<PathBuf>,
}

impl CommandLine {
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            envs: Vec::new(),
            directory: None,
            account: None,
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

    /// Another program of the same directory, with the same environment and no arguments.
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

    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    pub(crate) fn account(mut self, account: Option<Account>) -> Self {
        self.account = account;
        self
    }

    /// Sets the file to read standard input from; by default there is none.
    pub(crate) fn input(mut self, file: &Path) -> Self {
        self.input = Some(file.to_owned());
        self
    }

    /// Runs the program to its end, writing to `log`; an error shows the end of the log.
    pub(crate) fn run(&self, what: &str, log: &Path) -> Result<()> {
        let (out, err) = log_file(log)?;
        let mut command = self.command(&self.program, &self.args)?;
        let status = command.stdout(out).stderr(err).status();
        let status = status.with_context(|| format!("{what}: cannot run {}", self.program.display()))?;
        if status.success() {
            return Ok(());
        }
        bail!("{what} failed\n  {}", tail(log, 15))
    }

    /// Runs the program to its end and returns its standard output.
    pub(crate) fn output(&self) -> Result<String> {
        let program = self.program.display();
        let out = self.command(&self.program, &self.args)?.output();
        let out = out.with_context(|| format!("cannot run {program}"))?;
        if !out.status.success() {
            let error = String::from_utf8_lossy(&out.stderr);
            bail!("{program} does not run: {}", error.lines().next().unwrap_or_default().trim());
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Starts a server that outlives this process, in a session of its own, writing to `log`.
    pub(crate) fn detach(&self, log: &Path) -> Result<Child> {
        let (out, err) = log_file(log)?;
        let mut command = match find_program("setsid") {
            // `setsid` becomes the program without a fork, so that the process id stays the same.
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
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        Ok(command)
    }
}

fn log_file(path: &Path) -> Result<(File, File)> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((file.try_clone()?, file))
}

/// Searches `PATH` and the usual directories of servers for a program.
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
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The first line that a program prints for `--version`.
pub(crate) fn version_of(command: &CommandLine) -> Result<String> {
    let output = command.clone().arg("--version").output()?;
    let version = output.lines().next().unwrap_or_default().trim();
    if version.is_empty() {
        bail!("{} prints no version", command.program.display());
    }
    Ok(version.to_owned())
}
