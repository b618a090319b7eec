//! `cargo xtask verify` checks; `cargo xtask fix` writes.
//!
//! Every rule prints one line, and a broken one what to do about it. All rules run, so that one run shows all problems.

mod dependencies;
mod migrations;
mod packages;
mod public_api;
mod quotes;
mod text;
mod unused;
mod words;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use self::dependencies::Graph;

/// The violations of a rule, one line each; empty if it holds.
type Violations = Vec<String>;

/// Checks every rule of the project without changing a file.
pub(crate) fn verify(workspace: &Path) -> Result<()> {
    let mut report = Report::default();
    report.rule("formatting", "run `cargo xtask fix`", || {
        tool(cargo(workspace).args(["fmt", "--all", "--check", "--", "--color", "never"]))
    });
    let metadata = metadata(workspace);
    dependency_rules(workspace, &metadata, &mut report);
    package_rules(workspace, &metadata, &mut report);
    ddl_rules(workspace, &mut report);
    text_rules(workspace, &mut report);
    report.rule("clippy without warnings", "mend the code, or run `cargo xtask fix`", || {
        let mut clippy = cargo(workspace);
        clippy.args(["clippy", "--locked", "--all-targets"]).args(crate::cargo::EVERYTHING);
        tool(clippy.args(["--", "-D", "warnings"]))
    });
    report.rule("documentation without warnings", "fix the comments that it names", || {
        tool(&mut doc(workspace))
    });
    let packages = known(&metadata).and_then(packages::published);
    let target = known(&metadata).and_then(target);
    report.rule(
        "the public API is the recorded one",
        "run `cargo xtask fix`, and read what has changed",
        || public_api::changes(workspace, known(&target)?.as_path(), known(&packages)?),
    );
    report.rule("no two public types have one name", "rename one of them", || {
        public_api::homonyms(known(&target)?.as_path(), known(&packages)?)
    });
    report.verdict()
}

fn doc(workspace: &Path) -> Command {
    let mut doc = cargo(workspace);
    doc.args(["doc", "--locked", "--no-deps"]).args(crate::cargo::EVERYTHING);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    doc
}

/// The folder that cargo builds into.
fn target(metadata: &Value) -> Result<PathBuf> {
    Ok(metadata["target_directory"].as_str().context("no target directory in the metadata")?.into())
}

/// Formats, applies clippy's fixes, and updates copies of texts.
pub(crate) fn fix(workspace: &Path) -> Result<()> {
    println!("checksums in ddl/, copies of migrations");
    migrations::write_records(workspace)?;
    migrations::write_copies(workspace)?;
    let steps: [&[&str]; 2] = [
        &["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"],
        &["fmt", "--all"],
    ];
    for step in steps {
        println!("cargo {}", step.join(" "));
        if !cargo(workspace).args(step).status()?.success() {
            bail!("cargo {} failed", step[0]);
        }
    }
    // Last, because formatting changes the quoted programs.
    quotes::write(workspace)?;
    println!("the public API in docs/public-api");
    if !doc(workspace).status()?.success() {
        bail!("cargo doc failed");
    }
    let metadata = metadata(workspace)?;
    public_api::write(workspace, &target(&metadata)?, &packages::published(&metadata)?)
}

fn dependency_rules(workspace: &Path, metadata: &Result<Value>, report: &mut Report) {
    let graph = known(metadata).and_then(Graph::parse);
    for rule in dependencies::RULES {
        report.rule(rule.name, rule.remedy, || Ok((rule.check)(known(&graph)?)));
    }
    let remedy = "write `name.workspace = true`, and the version into the workspace's Cargo.toml";
    report.rule("versions stand in the workspace table only", remedy, || {
        let mut found = Vec::new();
        for manifest in known(&graph)?.manifests() {
            let text = std::fs::read_to_string(manifest)?;
            let shown = manifest.strip_prefix(workspace).unwrap_or(manifest).display().to_string();
            let parsed = text.parse().with_context(|| shown.clone())?;
            found.extend(dependencies::own_versions(&shown, &parsed));
        }
        Ok(found)
    });
}

/// The input that several rules need, or the reason why none of them can be checked.
fn known<T>(found: &Result<T>) -> Result<&T> {
    found.as_ref().map_err(|err| anyhow!("{err:#}"))
}

fn package_rules(workspace: &Path, metadata: &Result<Value>, report: &mut Report) {
    let packages = known(metadata).and_then(packages::published);
    let remedy = "complete the manifest; a crate that is not for others has `publish = false`";
    report.rule("manifests say what a registry asks for", remedy, || {
        Ok(known(&packages)?.iter().flat_map(packages::Package::manifest_faults).collect())
    });
    let remedy = "mend what cargo names; `cargo package` with the same packages shows it again";
    report.rule("published crates can be packaged", remedy, || {
        let mut command = cargo(workspace);
        command.args(["package", "--no-verify", "--allow-dirty", "--offline", "--quiet"]);
        for package in known(&packages)? {
            command.args(["--package", &package.name]);
        }
        tool(&mut command)
    });
    let remedy = "keep what a crate includes in its own folder, or a copy that `cargo xtask fix` writes";
    report.rule("published crates hold all that they include", remedy, || {
        let mut found = Vec::new();
        for package in known(&packages)? {
            let list = ["package", "--list", "--allow-dirty", "--offline", "--package", &package.name];
            let out = cargo(workspace).args(list).output().context("cannot run cargo package")?;
            if !out.status.success() {
                bail!("cargo package: {}", String::from_utf8_lossy(&out.stderr).trim());
            }
            found.extend(package.missing(&String::from_utf8(out.stdout)?)?);
        }
        Ok(found)
    });
}

fn ddl_rules(workspace: &Path, report: &mut Report) {
    report.rule("stores carry the migrations of ddl/", "run `cargo xtask fix`", || {
        migrations::copies(workspace)
    });
    let remedy = "run `cargo xtask fix`; write a row that is missing at the end of the file";
    report.rule("clean installs record their migrations", remedy, || migrations::records(workspace));
}

fn text_rules(workspace: &Path, report: &mut Report) {
    let files = text::files(workspace);
    let each = |find: &dyn Fn(&text::TextFile) -> Violations| match &files {
        Ok(files) => Ok(files.iter().flat_map(find).collect()),
        Err(err) => bail!("{err:#}"),
    };
    let hosts = text::registry_hosts();
    report.rule(
        "no address of a package registry",
        "take it from the machine's own configuration at run time",
        || each(&|file| text::holding(file, &hosts)),
    );
    let paths = text::machine_paths(workspace);
    report.rule("no path of this machine", "use a path that is right on every machine", || {
        each(&|file| text::holding(file, &paths))
    });
    report.rule(
        "no SQL text built at run time",
        "bind the value; names of tables and columns go through the crate's one audited module",
        || each(&text::built_sql),
    );
    let remedy = "wire it, with a test that fails if it is not consulted, or delete it";
    let all = || files.as_ref().map_err(|err| anyhow!("{err:#}"));
    report
        .rule("pages quote their sources as they are", "run `cargo xtask fix`", || Ok(quotes::stale(all()?)));
    report.rule("comments begin with a subject", "begin with what the item is or does", || {
        each(&words::banned_openings)
    });
    report.rule("every option is read", remedy, || Ok(unused::options(all()?)));
    report.rule("every method of a plug point is called", remedy, || Ok(unused::plug_methods(all()?)));
}

fn metadata(workspace: &Path) -> Result<Value> {
    let out = cargo(workspace)
        .args(["metadata", "--locked", "--format-version", "1"])
        .stderr(Stdio::piped())
        .output()
        .context("cannot run cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

fn cargo(workspace: &Path) -> Command {
    let mut command = crate::cargo();
    command.current_dir(workspace);
    command
}

/// Runs a tool; its output is the violations if it fails.
fn tool(command: &mut Command) -> Result<Violations> {
    let out = command.stdin(Stdio::null()).output().context("cannot run cargo")?;
    if out.status.success() {
        return Ok(Vec::new());
    }
    // Cargo's progress lines are dropped.
    const PROGRESS: [&str; 6] =
        ["Checking ", "Compiling ", "Documenting ", "Downloading ", "Downloaded ", "Blocking "];
    let is_progress = |line: &&str| PROGRESS.iter().any(|word| line.trim_start().starts_with(word));
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter(|line| !is_progress(line)).map(str::to_owned).collect())
}

#[derive(Debug, Default)]
struct Report {
    held: usize,
    broken: Vec<String>,
}

impl Report {
    fn rule(&mut self, name: &str, remedy: &str, check: impl FnOnce() -> Result<Violations>) {
        let begun = Instant::now();
        let violations = check().unwrap_or_else(|err| vec![format!("cannot be checked: {err:#}")]);
        let seconds = begun.elapsed().as_secs_f64();
        if violations.is_empty() {
            println!("ok      {name}  ({seconds:.1} s)");
            self.held += 1;
            return;
        }
        println!("failed  {name}  ({seconds:.1} s)");
        for line in &violations {
            println!("          {line}");
        }
        println!("        what to do: {remedy}");
        self.broken.push(name.to_owned());
    }

    fn verdict(self) -> Result<()> {
        if self.broken.is_empty() {
            println!("all {} rules hold", self.held);
            return Ok(());
        }
        bail!(
            "{} of {} rules broken: {}",
            self.broken.len(),
            self.held + self.broken.len(),
            self.broken.join("; ")
        )
    }
}
