//! Checks that each library crate is complete when published: a package contains only the crate's own folder.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Violations;

/// A crate that may be published.
#[derive(Debug)]
pub(super) struct Package {
    /// Its name.
    pub(super) name: String,
    /// Whether other crates can depend on it.
    pub(super) has_library: bool,
    folder: PathBuf,
    wrong: Violations,
}

/// The crates of the workspace that may be published.
pub(super) fn published(metadata: &Value) -> Result<Vec<Package>> {
    let members = metadata["workspace_members"].as_array().context("no members in the metadata")?;
    let packages = metadata["packages"].as_array().context("no packages in the metadata")?;
    // `publish = false` appears as an empty list of registries.
    let is_published = |package: &&Value| {
        members.contains(&package["id"]) && package["publish"].as_array().is_none_or(|to| !to.is_empty())
    };
    Ok(packages.iter().filter(is_published).map(Package::parse).collect())
}

impl Package {
    fn parse(package: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest.parent().map(Path::to_owned).unwrap_or_default();
        let kinds =
            package["targets"].as_array().into_iter().flatten().flat_map(|target| target["kind"].as_array());
        let has_library = kinds.flatten().any(|kind| kind == "lib" || kind == "proc-macro");
        Self { name: text(&package["name"]), has_library, folder, wrong: manifest_faults(package) }
    }

    /// The problems with the manifest.
    pub(super) fn manifest_faults(&self) -> impl Iterator<Item = String> {
        self.wrong.iter().map(|wrong| format!("{}: {wrong}", self.name))
    }

    /// Files that the code includes but the package lacks. `packed` is the output of `cargo package --list`.
    pub(super) fn missing(&self, packed: &str) -> Result<Violations> {
        let packed: BTreeSet<PathBuf> = packed.lines().map(PathBuf::from).collect();
        let mut found = Vec::new();
        for file in packed.iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
            let path = self.folder.join(file);
            let code = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let base = file.parent().unwrap_or(Path::new(""));
            let holds = |wanted: &Path| packed.iter().any(|file| file.starts_with(wanted));
            let missing =
                includes(&code).into_iter().filter(|name| !resolve(base, name).is_some_and(|p| holds(&p)));
            found.extend(missing.map(|name| format!("{}/{}: {name}", self.name, file.display())));
        }
        Ok(found)
    }
}

fn manifest_faults(package: &Value) -> Violations {
    let is_missing = |name: &&str| match &package[*name] {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    let fields = ["description", "license", "readme", "keywords", "categories"];
    let missing = fields.into_iter().filter(is_missing).map(|name| format!("`{name}` is missing"));
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    // A dev-dependency on one of our own crates must have no version: it is then left out of the package, and two
    // crates may test with each other. (Cargo itself demands a version of the other dependencies.)
    let judge = |dependency: &Value| {
        let for_tests = dependency["path"].is_string() && dependency["kind"] == "dev";
        let name = dependency["name"].as_str().unwrap_or_default();
        (for_tests && dependency["req"] != "*")
            .then(|| format!("the tests' dependency on {name} has a version"))
    };
    missing.chain(dependencies.filter_map(judge)).collect()
}

/// The paths of included files. Of a concatenated name, the first part: a folder.
fn includes(code: &str) -> Vec<&str> {
    // Split, so that this file includes nothing.
    const MACROS: [&str; 2] = [concat!("include", "_str!("), concat!("include", "_bytes!(")];
    let calls = MACROS.iter().flat_map(|name| code.split(name).skip(1));
    calls
        .filter_map(|call| {
            let call = call.trim_start();
            let call = call.strip_prefix("concat!(").unwrap_or(call).trim_start();
            call.strip_prefix('"')?.split('"').next()
        })
        .collect()
}

/// A path within the package; `None` if it leads out of it.
fn resolve(base: &Path, name: &str) -> Option<PathBuf> {
    let mut path = base.to_owned();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_out_of_the_package_leads_nowhere() {
        assert_eq!(resolve(Path::new("src/a"), "../b.sql"), Some("src/b.sql".into()));
        assert_eq!(resolve(Path::new("src"), "../queries/"), Some("queries".into()));
        assert_eq!(resolve(Path::new("src"), "../../ddl/a.sql"), None);
        assert_eq!(resolve(Path::new("src"), "/etc/passwd"), None);
    }

    #[test]
    fn includes_are_found_however_they_are_written() {
        let code = r#"A("a.sql"); A( concat!("q/", $name)); B("b.bin"); A($name)"#;
        let code = code.replace('A', concat!("include", "_str!")).replace('B', concat!("include", "_bytes!"));
        assert_eq!(includes(&code), ["a.sql", "q/", "b.bin"]);
    }

    #[test]
    fn a_manifest_that_lacks_something_is_found() {
        let good = json!({
            "description": "x", "license": "MIT", "readme": "README.md", "keywords": ["a"], "categories": ["b"],
            "dependencies": [
                {"name": "serde", "req": "^1", "path": null, "kind": null},
                {"name": "ratchet-api", "req": "^0.1", "path": "/x", "kind": null},
                {"name": "ratchet-tck", "req": "*", "path": "/x", "kind": "dev"},
            ],
        });
        assert!(manifest_faults(&good).is_empty());
        let mut bad = good;
        bad["keywords"] = json!([]);
        bad["readme"] = Value::Null;
        bad["dependencies"][2]["req"] = "^0.1".into();
        assert_eq!(
            manifest_faults(&bad),
            [
                "`readme` is missing",
                "`keywords` is missing",
                "the tests' dependency on ratchet-tck has a version",
            ]
        );
    }

    #[test]
    fn crates_that_stay_at_home_are_left_alone() {
        let package = |name: &str, publish: Value| json!({"id": name, "name": name, "publish": publish});
        let metadata = json!({
            "workspace_members": ["a", "b"],
            "packages": [package("a", Value::Null), package("b", json!([])), package("c", Value::Null)],
        });
        let names: Vec<String> =
            published(&metadata).unwrap().into_iter().map(|package| package.name).collect();
        assert_eq!(names, ["a"]);
    }
}
