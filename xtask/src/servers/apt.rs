//! Debian packages unpacked beside the system, through a private apt root.
//!
//! Nothing is installed and no address is written here: mirror and keyring come from the machine's
//! own apt sources. Index, downloads and unpacked files all lie in the cache.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::{
    cache::{Base, Manifest, remove_folder},
    process::{Launch, find_program},
    screen::{Screen, Total, megabytes},
};

/// Where the packages come from, and what they may lean on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The machine's own sources; only what the machine does not have yet is fetched.
    Machine,
    /// Debian's `sid`, with every dependency down to the C library: it must not mix with the system.
    Sid,
}

/// Unpacks `package` and what it needs below `base`; returns the root of the unpacked files.
pub(crate) fn unpack(base: &Base, package: &str, origin: Origin, screen: &Screen) -> Result<PathBuf> {
    let what = match origin {
        Origin::Machine => package.to_owned(),
        Origin::Sid => format!("{package} from sid"),
    };
    let _lock = base.lock(package, screen)?;
    let root = base.folder("roots").join(package);
    if Manifest::is_complete(&root, &what) {
        return Ok(root);
    }
    if find_program("apt-get").is_none() || find_program("dpkg-deb").is_none() {
        bail!("it is not on this machine, and there is no apt-get to fetch it with");
    }
    let fetch = Fetch { private: base.folder("apt").join(package), package, origin, screen };
    let files = fetch.download().or_else(|err| {
        screen.say(format!("fetching failed, once more with a fresh index: {err}"));
        fetch.download()
    })?;
    let draft = base.folder("roots").join(format!("{package}.new"));
    remove_folder(&draft)?;
    fs::create_dir_all(&draft)?;
    screen.say(format!("unpacking {} packages", files.len()));
    for file in &files {
        Launch::new("dpkg-deb")
            .arg("-x")
            .arg(file)
            .arg(&draft)
            .run("dpkg-deb", &fetch.private.join("unpack.log"))?;
    }
    Manifest::of(&what, &files)?.write(&draft)?;
    remove_folder(&root)?;
    fs::rename(&draft, &root)?;
    remove_folder(&fetch.private)?;
    Ok(root)
}

/// Lets a program below `root` find the libraries that came with it; the rest is the system's.
pub(crate) fn with_libraries(launch: Launch, root: &Path) -> Launch {
    let folders = [root.join("usr/lib"), root.join("lib")];
    let below = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let libraries: Vec<PathBuf> = below
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with("-linux-gnu"))
        .collect();
    match std::env::join_paths(libraries) {
        Ok(path) if !path.is_empty() => launch.env("LD_LIBRARY_PATH", path),
        _ => launch,
    }
}

fn quiet_apt() -> Launch {
    Launch::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C").args([
        "-q",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Dpkg::Use-Pty=0",
    ])
}

struct Fetch<'a> {
    private: PathBuf,
    package: &'a str,
    origin: Origin,
    screen: &'a Screen,
}

impl Fetch<'_> {
    /// Brings the packages into the private archive, from a fresh index, and returns their files.
    fn download(&self) -> Result<Vec<PathBuf>> {
        remove_folder(&self.private)?;
        let archives = self.private.join("cache/archives");
        fs::create_dir_all(archives.join("partial"))?;
        fs::create_dir_all(self.private.join("state/lists/partial"))?;
        let status = self.private.join("state/status");
        match self.origin {
            // A copy: apt locks the folder of the file it is given, and that needs root.
            Origin::Machine => drop(fs::copy("/var/lib/dpkg/status", &status)?),
            Origin::Sid => {
                fs::write(&status, "")?;
                fs::write(self.sources(), Mirror::of_this_machine()?.line("sid"))?;
            }
        }
        self.screen.say("reading the package index");
        let index = self.private.join("state/lists");
        let log = self.private.join("update.log");
        let mut child = self.apt().arg("update").start("apt-get update", &log)?;
        if !self.screen.watch(&mut child, &index, Total::Unknown)? {
            bail!("apt-get update failed\n  {}", super::screen::tail(&log, 15));
        }

        let list = self.private.join("list.log");
        self.apt()
            .args(["install", "-y", "-qq", "--print-uris", self.package])
            .run("apt-get install --print-uris", &list)?;
        let wanted = wanted_files(&fs::read_to_string(&list)?);
        if wanted.is_empty() {
            bail!("apt-get has nothing to fetch for {}", self.package);
        }
        let bytes = wanted.iter().map(|(_, bytes)| bytes).sum();
        self.screen.say(format!("fetching {} packages, {}", wanted.len(), megabytes(bytes)));
        let log = self.private.join("download.log");
        let mut child = self
            .apt()
            .args(["install", "-y", "--download-only", self.package])
            .start("apt-get install --download-only", &log)?;
        let total = Total::Known { files: wanted.len(), bytes };
        if !self.screen.watch(&mut child, &archives, total)? {
            bail!("apt-get install --download-only failed\n  {}", super::screen::tail(&log, 15));
        }
        wanted
            .into_iter()
            .map(|(name, bytes)| {
                let path = archives.join(&name);
                match fs::metadata(&path) {
                    Ok(meta) if meta.len() == bytes => Ok(path),
                    _ => bail!("{name} did not arrive whole"),
                }
            })
            .collect()
    }

    fn sources(&self) -> PathBuf {
        self.private.join("sources.list")
    }

    /// Options on the command line come after the machine's configuration: its proxies and
    /// credentials stay in force, only the places are ours.
    fn apt(&self) -> Launch {
        let place = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut options = vec![
            place("Dir::State", &self.private.join("state")),
            place("Dir::State::status", &self.private.join("state/status")),
            place("Dir::Cache", &self.private.join("cache")),
            "APT::Install-Recommends=false".into(),
            "APT::Get::List-Cleanup=false".into(),
            "APT::Sandbox::User=".into(),
            "Acquire::Check-Valid-Until=false".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "Acquire::IndexTargets::deb::CNF::DefaultEnabled=false".into(),
            "Acquire::Retries=3".into(),
        ];
        if self.origin == Origin::Sid {
            options.push(place("Dir::Etc::sourcelist", &self.sources()));
            options.push("Dir::Etc::sourceparts=/dev/null".into());
            options.push("Dir::Etc::preferences=/dev/null".into());
            options.push("Dir::Etc::preferencesparts=/dev/null".into());
        }
        options.into_iter().fold(quiet_apt(), |launch, option| launch.arg("-o").arg(option))
    }
}

/// Names and sizes in the lines that `apt-get --print-uris` prints: `'address' name size hash`.
fn wanted_files(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter_map(|line| line.strip_prefix('\'')?.split_once("' "))
        .filter_map(|(_, rest)| {
            let mut words = rest.split_ascii_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

/// The Debian mirror that this machine uses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    address: String,
    keyring: Option<String>,
}

impl Mirror {
    fn of_this_machine() -> Result<Self> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let value = |name: &str| {
            release
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .map(|text| text.trim_matches('"').to_owned())
        };
        if value("ID").as_deref() != Some("debian") {
            bail!("its packages can be fetched on Debian only");
        }
        let suite = value("VERSION_CODENAME").unwrap_or_else(|| "sid".to_owned());
        let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
        files.extend(
            fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|e| e.path()),
        );
        files.sort();
        let mut mirrors = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).unwrap_or_default();
            match file.extension().and_then(|e| e.to_str()) {
                Some("list") => mirrors.extend(one_line_mirrors(&text, &suite)),
                Some("sources") => mirrors.extend(deb822_mirrors(&text, &suite)),
                _ => {}
            }
        }
        let mut mirror = mirrors
            .into_iter()
            .next()
            .with_context(|| format!("no apt source of this machine has the suite {suite}"))?;
        const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
        if mirror.keyring.is_none() && Path::new(KEYRING).exists() {
            mirror.keyring = Some(KEYRING.to_owned());
        }
        Ok(mirror)
    }

    fn line(&self, suite: &str) -> String {
        let signed_by = self.keyring.as_ref().map(|k| format!("[signed-by={k}] ")).unwrap_or_default();
        format!("deb {signed_by}{} {suite} main\n", self.address)
    }
}

/// Sources of the form `deb [signed-by=…] address suite components`.
fn one_line_mirrors(text: &str, suite: &str) -> Vec<Mirror> {
    text.lines()
        .filter_map(|line| {
            let mut rest = line.trim().strip_prefix("deb ")?.trim_start();
            let mut keyring = None;
            if let Some((options, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
                keyring = options
                    .split_ascii_whitespace()
                    .find_map(|o| o.strip_prefix("signed-by="))
                    .map(str::to_owned);
                rest = after;
            }
            let words: Vec<&str> = rest.split_ascii_whitespace().collect();
            let [address, found, components @ ..] = words.as_slice() else { return None };
            (*found == suite && components.contains(&"main"))
                .then(|| Mirror { address: (*address).to_owned(), keyring })
        })
        .collect()
}

/// Sources in paragraphs of `Name: value` lines.
fn deb822_mirrors(text: &str, suite: &str) -> Vec<Mirror> {
    let mut found = Vec::new();
    let uncommented: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for paragraph in uncommented.split(|line| line.trim().is_empty()) {
        let field = |name: &str| {
            paragraph.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let has = |name: &str, word: &str| {
            field(name).is_some_and(|value| value.split_ascii_whitespace().any(|w| w == word))
        };
        let enabled = !field("Enabled").is_some_and(|v| v.eq_ignore_ascii_case("no"));
        if enabled && has("Types", "deb") && has("Suites", suite) && has("Components", "main") {
            let address = field("URIs").and_then(|v| v.split_ascii_whitespace().next());
            // A key may also stand here in full; then the installed keyring does.
            let keyring = field("Signed-By").filter(|v| v.starts_with('/')).map(str::to_owned);
            found.extend(address.map(|a| Mirror { address: a.to_owned(), keyring }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(keyring: Option<&str>) -> Mirror {
        Mirror { address: "http://mirror.test/debian".into(), keyring: keyring.map(str::to_owned) }
    }

    #[test]
    fn a_one_line_source_gives_the_mirror() {
        let text = "# comment\n\
            deb-src http://src.test/debian bookworm main\n\
            deb http://security.test/debian-security bookworm-security main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bookworm main contrib\n";
        assert_eq!(one_line_mirrors(text, "bookworm"), [mirror(Some("/k.gpg"))]);
        assert_eq!(one_line_mirrors("deb http://mirror.test/debian sid main", "sid"), [mirror(None)]);
        assert_eq!(one_line_mirrors("deb http://x.test/debian sid contrib", "sid"), []);
    }

    #[test]
    fn a_deb822_source_gives_the_mirror() {
        let text = "Types: deb\n\
            # URIs: http://old.test/debian\n\
            URIs: http://mirror.test/debian\n\
            Suites: bookworm bookworm-updates\n\
            Components: main\n\
            Signed-By: /k.gpg\n\
            \n\
            Types: deb\n\
            URIs: http://security.test/debian-security\n\
            Suites: bookworm-security\n\
            Components: main\n";
        assert_eq!(deb822_mirrors(text, "bookworm"), [mirror(Some("/k.gpg"))]);
        let off = text.replacen("Types: deb\n", "Types: deb\nEnabled: no\n", 1);
        assert_eq!(deb822_mirrors(&off, "bookworm"), []);
    }

    #[test]
    fn a_source_line_names_suite_and_keyring() {
        assert_eq!(
            mirror(Some("/k.gpg")).line("sid"),
            "deb [signed-by=/k.gpg] http://mirror.test/debian sid main\n"
        );
        assert_eq!(mirror(None).line("sid"), "deb http://mirror.test/debian sid main\n");
    }

    #[test]
    fn what_apt_will_fetch_is_read_with_sizes() {
        let text = "Reading package lists...\n\
            'http://m.test/a_1%2b1.deb' a_1+1_all.deb 6636 MD5Sum:2cf9\n\
            'http://m.test/b.deb' b_1%3a2_amd64.deb 27624 \n";
        let expected = [("a_1+1_all.deb".to_owned(), 6636), ("b_1%3a2_amd64.deb".to_owned(), 27624)];
        assert_eq!(wanted_files(text), expected);
    }
}
