//! Debian packages unpacked beside the system, through a private apt root.
//!
//! Nothing is installed and no address is written here: apt itself says which mirror this machine uses. Index,
//! downloads and unpacked files are all in the cache.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result, bail};

use super::{
    cache::{Manifest, Shared, remove_directory},
    command_line::{CommandLine, find_program},
    progress::{Progress, Total, megabytes},
};

/// The suite that packages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// The machine's own sources; only packages that the machine does not have yet are fetched.
    Machine,
    /// Debian's `sid`, with every dependency down to the C library: it must not mix with the system.
    Sid,
}

/// Unpacks `package` and its dependencies into the cache; returns the root of the unpacked files.
pub(crate) fn unpack(shared: &Shared, package: &str, suite: Suite, progress: &Progress) -> Result<PathBuf> {
    let what = match suite {
        Suite::Machine => package.to_owned(),
        Suite::Sid => format!("{package} from sid"),
    };
    let _lock = shared.lock(package, progress)?;
    let root = shared.directory("roots").join(package);
    if Manifest::is_complete(&root, &what) {
        return Ok(root);
    }
    if find_program("apt-get").is_none() || find_program("dpkg-deb").is_none() {
        bail!("it is not on this machine, and there is no apt-get to fetch it with");
    }
    let fetch = Fetch { private: shared.directory("apt").join(package), package, suite, progress };
    let files = fetch.download().or_else(|err| {
        progress.say(format!("download failed, trying again with a fresh index: {err}"));
        fetch.download()
    })?;
    let draft = shared.directory("roots").join(format!("{package}.new"));
    remove_directory(&draft)?;
    fs::create_dir_all(&draft)?;
    fetch.unpack(&files, &draft)?;
    Manifest::of(&what, &files, progress)?.write(&draft)?;
    progress.step("tidying up", || {
        remove_directory(&root)?;
        fs::rename(&draft, &root)?;
        remove_directory(&fetch.private)
    })?;
    Ok(root)
}

/// Makes a program below `root` use the libraries that came with it; others come from the system.
pub(crate) fn with_libraries(program: CommandLine, root: &Path) -> CommandLine {
    let directories = [root.join("usr/lib"), root.join("lib")];
    let below = directories.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let libraries: Vec<PathBuf> = below
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with("-linux-gnu"))
        .collect();
    match std::env::join_paths(libraries) {
        Ok(path) if !path.is_empty() => program.env("LD_LIBRARY_PATH", path),
        _ => program,
    }
}

fn quiet_apt() -> CommandLine {
    CommandLine::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C").args([
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
    suite: Suite,
    progress: &'a Progress,
}

impl Fetch<'_> {
    /// Downloads the packages into the private archive, from a fresh index, and returns their files.
    fn download(&self) -> Result<Vec<PathBuf>> {
        remove_directory(&self.private)?;
        let archives = self.private.join("cache/archives");
        fs::create_dir_all(archives.join("partial"))?;
        fs::create_dir_all(self.private.join("state/lists/partial"))?;
        let status = self.private.join("state/status");
        match self.suite {
            // A copy: apt locks the directory of this file, which needs root.
            Suite::Machine => drop(fs::copy("/var/lib/dpkg/status", &status)?),
            Suite::Sid => {
                fs::write(&status, "")?;
                fs::write(self.sources(), source_line(&mirror()?, "sid"))?;
            }
        }
        let index = self.private.join("state/lists");
        self.progress.measured_step(
            "downloading the package index",
            move || Total::Unknown.arrived_in(&index),
            || self.apt().arg("update").run("apt-get update", &self.private.join("update.log")),
        )?;

        let list = self.private.join("list.log");
        self.progress.step("resolving the dependencies", || {
            self.apt()
                .args(["install", "-y", "-qq", "--print-uris", self.package])
                .run("apt-get install --print-uris", &list)
        })?;
        let wanted = wanted_files(&fs::read_to_string(&list)?);
        if wanted.is_empty() {
            bail!("apt-get has nothing to fetch for {}", self.package);
        }
        let bytes = wanted.iter().map(|(_, bytes)| bytes).sum();
        let total = Total::Known { files: wanted.len(), bytes };
        let arriving = archives.clone();
        self.progress.measured_step(
            format!("downloading {} packages, {}", wanted.len(), megabytes(bytes)),
            move || total.arrived_in(&arriving),
            || {
                self.apt()
                    .args(["install", "-y", "--download-only", self.package])
                    .run("apt-get install --download-only", &self.private.join("download.log"))
            },
        )?;
        wanted
            .into_iter()
            .map(|(name, bytes)| {
                let path = archives.join(&name);
                match fs::metadata(&path) {
                    Ok(meta) if meta.len() == bytes => Ok(path),
                    _ => bail!("{name} was not downloaded completely"),
                }
            })
            .collect()
    }

    fn unpack(&self, files: &[PathBuf], root: &Path) -> Result<()> {
        let unpacked = Arc::new(AtomicUsize::new(0));
        let (so_far, total) = (Arc::clone(&unpacked), files.len());
        let detail = move || format!("{} of {total}", so_far.load(Ordering::Relaxed));
        self.progress.measured_step(format!("unpacking {total} packages"), detail, || {
            for file in files {
                CommandLine::new("dpkg-deb")
                    .arg("-x")
                    .arg(file)
                    .arg(root)
                    .run("dpkg-deb", &self.private.join("unpack.log"))?;
                unpacked.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    fn sources(&self) -> PathBuf {
        self.private.join("sources.list")
    }

    /// Options on the command line come after the machine's configuration: its proxies and credentials stay in force,
    /// only the directories are ours.
    fn apt(&self) -> CommandLine {
        let directory = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut options = vec![
            directory("Dir::State", &self.private.join("state")),
            directory("Dir::State::status", &self.private.join("state/status")),
            directory("Dir::Cache", &self.private.join("cache")),
            "APT::Install-Recommends=false".into(),
            "APT::Get::List-Cleanup=false".into(),
            "APT::Sandbox::User=".into(),
            "Acquire::Check-Valid-Until=false".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "Acquire::IndexTargets::deb::CNF::DefaultEnabled=false".into(),
            "Acquire::Retries=3".into(),
        ];
        if self.suite == Suite::Sid {
            options.push(directory("Dir::Etc::sourcelist", &self.sources()));
            options.push("Dir::Etc::sourceparts=/dev/null".into());
            options.push("Dir::Etc::preferences=/dev/null".into());
            options.push("Dir::Etc::preferencesparts=/dev/null".into());
        }
        options.into_iter().fold(quiet_apt(), |apt, option| apt.arg("-o").arg(option))
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

/// The Debian mirror of this machine: the repository that its own release comes from, as apt tells it.
fn mirror() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |name: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(|text| text.trim_matches('"').to_owned())
    };
    if value("ID").as_deref() != Some("debian") {
        bail!("its packages can be fetched on Debian only");
    }
    let suite = value("VERSION_CODENAME").unwrap_or_else(|| "sid".to_owned());
    let targets = quiet_apt()
        // Without this, sources whose index was never downloaded are left out.
        .args(["indextargets", "--no-release-info", "--format", "$(REPO_URI)"])
        .args(["Target-Of: deb", "Identifier: Packages", "Component: main"])
        .arg(format!("Release: {suite}"))
        .output()?;
    let first = targets.lines().next().map(str::to_owned);
    first.with_context(|| format!("no apt source of this machine has the suite {suite}"))
}

/// The line for the private `sources.list`. The keys of the system count if there is no Debian keyring.
fn source_line(mirror: &str, suite: &str) -> String {
    const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let signed_by =
        if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
    format!("deb {signed_by}{mirror} {suite} main\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_that_apt_will_fetch_are_read_with_sizes() {
        let text = "Reading package lists...\n\
            'http://m.test/a_1%2b1.deb' a_1+1_all.deb 6636 MD5Sum:2cf9\n\
            'http://m.test/b.deb' b_1%3a2_amd64.deb 27624 \n";
        let expected = [("a_1+1_all.deb".to_owned(), 6636), ("b_1%3a2_amd64.deb".to_owned(), 27624)];
        assert_eq!(wanted_files(text), expected);
    }

    #[test]
    fn a_source_line_names_mirror_suite_and_component() {
        let line = source_line("http://mirror.test/debian/", "sid");
        assert!(line.starts_with("deb "), "{line}");
        assert!(line.ends_with("http://mirror.test/debian/ sid main\n"), "{line}");
    }
}
