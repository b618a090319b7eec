//! The allowed dependencies between crates: plain functions over the output of `cargo metadata`.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Violations;

/// A rule over the whole graph.
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) remedy: &'static str,
    pub(super) check: fn(&Graph) -> Violations,
}

/// Every rule that needs only the graph.
pub(super) const RULES: [Rule; 4] = [
    Rule {
        name: "crates depend in one direction",
        remedy: "move the code to a crate that may see the other, or, for a new crate, extend LAYERS",
        check: layering,
    },
    Rule {
        name: "the contract knows no runtime and no driver",
        remedy: "keep runtimes and drivers in the engine and the stores",
        check: |graph| {
            let barred: Vec<&str> = RUNTIMES.iter().chain(&DRIVERS).copied().collect();
            ["ratchet-api", "ratchet-macros"].iter().flat_map(|from| graph.paths(from, &barred)).collect()
        },
    },
    Rule {
        name: "the engine knows no driver",
        remedy: "keep drivers in the stores",
        check: |graph| graph.paths("ratchet-core", &DRIVERS),
    },
    Rule {
        name: "the MongoDB store shares nothing with SQL",
        remedy: "share rules through ratchet-api and tests through ratchet-tck",
        check: |graph| graph.paths("ratchet-store-mongodb", &["sqlx", "sqlx-core", "ratchet-store-core"]),
    },
];

const RUNTIMES: [&str; 4] = ["tokio", "async-std", "smol", "async-executor"];
const DRIVERS: [&str; 9] = [
    "sqlx",
    "sqlx-core",
    "mongodb",
    "rusqlite",
    "postgres",
    "tokio-postgres",
    "mysql_async",
    "diesel",
    "libsqlite3-sys",
];

/// The dependencies within the workspace that a crate may have.
struct Layer {
    /// The name of the crate; a trailing `*` matches any ending.
    name: &'static str,
    /// The dependencies of the crate itself and of its build script.
    normal: &'static [&'static str],
    /// The additional dependencies of its tests.
    tests: &'static [&'static str],
}

const ANY: &[&str] = &["*"];
/// The name that stands for every crate in the folder `examples`.
const EXAMPLES: &str = "examples/*";

/// Crates for tests, with the crates that may link them. All others may depend on them in their tests only, if at all.
const LINKED_BY: [(&str, &[&str]); 2] = [
    ("ratchet-tck", &["xtask"]),
    ("ratchet-servers", &["ratchet-bench", "ratchet-suite", "ratchet-torture", "xtask"]),
];

/// The layers. The first entry that matches a crate counts.
const LAYERS: [Layer; 17] = [
    Layer { name: "ratchet-api", normal: &[], tests: &[] },
    Layer { name: "ratchet-macros", normal: &[], tests: &["ratchet-api", "ratchet-core"] },
    Layer {
        name: "ratchet-core",
        normal: &["ratchet-api", "ratchet-macros"],
        tests: &["ratchet-store-memory"],
    },
    Layer { name: "ratchet-servers", normal: &[], tests: &[] },
    Layer { name: "ratchet-tck", normal: &["ratchet-api"], tests: &["ratchet-store-memory"] },
    Layer {
        name: "ratchet-store-core",
        normal: &["ratchet-api"],
        tests: &["ratchet-servers", "ratchet-tck"],
    },
    Layer { name: "ratchet-store-memory", normal: &["ratchet-api"], tests: &["ratchet-tck"] },
    Layer {
        name: "ratchet-store-mongodb",
        normal: &["ratchet-api"],
        tests: &["ratchet-servers", "ratchet-tck", "ratchet-store-memory"],
    },
    Layer {
        name: "ratchet-store-*",
        normal: &["ratchet-api", "ratchet-store-core"],
        tests: &["ratchet-servers", "ratchet-tck", "ratchet-store-memory"],
    },
    Layer {
        name: "ratchet-testing",
        normal: &["ratchet-api", "ratchet-core", "ratchet-store-memory"],
        tests: &["ratchet-macros"],
    },
    Layer { name: "xtask", normal: ANY, tests: ANY },
    Layer { name: "ratchet-bench", normal: ANY, tests: ANY },
    Layer { name: "ratchet-cli", normal: ANY, tests: ANY },
    Layer { name: "ratchet-suite", normal: ANY, tests: ANY },
    Layer { name: "ratchet-dashboard", normal: ANY, tests: ANY },
    Layer { name: "ratchet-torture", normal: ANY, tests: ANY },
    Layer { name: EXAMPLES, normal: ANY, tests: ANY },
];

/// Finds dependencies that [`LAYERS`] does not allow.
fn layering(graph: &Graph) -> Violations {
    let mut found = Vec::new();
    for package in graph.members() {
        let Some(layer) = LAYERS.iter().find(|layer| package.is_in(layer)) else {
            found.push(format!("{} is not in LAYERS of xtask/src/verify/dependencies.rs", package.name));
            continue;
        };
        for edge in &package.edges {
            let target = &graph.packages[&edge.to];
            if !target.member || target.name == package.name {
                continue;
            }
            let allowed = |list: &[&str]| list.iter().any(|pattern| fits(pattern, &target.name));
            if edge.normal && !(may_link(&package.name, &target.name) && allowed(layer.normal)) {
                found.push(format!("{} depends on {}", package.name, target.name));
            }
            if edge.tests && !allowed(layer.normal) && !allowed(layer.tests) {
                found.push(format!("{} depends on {} in its tests", package.name, target.name));
            }
        }
    }
    found
}

/// Whether [`LINKED_BY`] allows this crate to link that one.
fn may_link(package: &str, target: &str) -> bool {
    LINKED_BY.iter().all(|(name, by)| *name != target || by.contains(&package))
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Finds dependencies of a manifest that do not take their version from the workspace.
pub(super) fn own_versions(shown: &str, manifest: &toml::Table) -> Violations {
    const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let sections = std::iter::once(manifest)
        .chain(targets.into_iter().flat_map(|t| t.values().filter_map(toml::Value::as_table)));
    for section in sections {
        for table in TABLES {
            for (name, entry) in section.get(table).and_then(toml::Value::as_table).into_iter().flatten() {
                let inherits = entry.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                // A crate that has itself, or a crate that depends on it, as a dev-dependency names it by path alone:
                // that dependency is then left out of the package.
                let is_left_out = table == "dev-dependencies"
                    && entry.get("path").is_some()
                    && entry.get("version").is_none();
                if !inherits && !is_left_out {
                    found.push(format!("{shown}: `{name}` in [{table}]"));
                }
            }
        }
    }
    found
}

/// The packages of a build and their dependencies.
#[derive(Debug, Default)]
pub(super) struct Graph {
    packages: BTreeMap<String, Package>,
}

#[derive(Debug, Default)]
struct Package {
    name: String,
    manifest: PathBuf,
    member: bool,
    edges: Vec<Edge>,
}

impl Package {
    fn is_in(&self, layer: &Layer) -> bool {
        let above = self.manifest.parent().and_then(Path::parent);
        let is_example = above.is_some_and(|folder| folder.ends_with("examples"));
        if layer.name == EXAMPLES { is_example } else { fits(layer.name, &self.name) }
    }
}

#[derive(Debug)]
struct Edge {
    to: String,
    /// Whether in the crate itself or in its build script.
    normal: bool,
    tests: bool,
}

impl Graph {
    /// Parses the output of `cargo metadata --format-version 1`.
    pub(super) fn parse(metadata: &Value) -> Result<Self> {
        let list = |value: &Value, name: &str| -> Result<Vec<Value>> {
            Ok(value[name].as_array().with_context(|| format!("no `{name}` in the metadata"))?.clone())
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let members: BTreeSet<String> = list(metadata, "workspace_members")?.iter().map(text).collect();
        let mut packages = BTreeMap::new();
        for package in list(metadata, "packages")? {
            let id = text(&package["id"]);
            let member = members.contains(&id);
            let manifest = text(&package["manifest_path"]).into();
            let name = text(&package["name"]);
            packages.insert(id, Package { name, manifest, member, edges: Vec::new() });
        }
        for node in list(&metadata["resolve"], "nodes")? {
            let mut edges = Vec::new();
            for dep in list(&node, "deps")? {
                let kinds = list(&dep, "dep_kinds")?;
                let is_dev = |kind: &Value| kind["kind"] == "dev";
                edges.push(Edge {
                    to: text(&dep["pkg"]),
                    normal: kinds.iter().any(|kind| !is_dev(kind)),
                    tests: kinds.iter().any(is_dev),
                });
            }
            packages.get_mut(&text(&node["id"])).context("a node without a package")?.edges = edges;
        }
        Ok(Self { packages })
    }

    /// The manifests of the workspace's crates.
    pub(super) fn manifests(&self) -> impl Iterator<Item = &Path> {
        self.members().map(|package| package.manifest.as_path())
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.values().filter(|package| package.member)
    }

    /// The shortest paths from a crate to any of the barred ones, without dev-dependencies.
    fn paths(&self, from: &str, barred: &[&str]) -> Violations {
        let Some(start) = self.packages.iter().find(|(_, p)| p.member && p.name == from) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut seen = BTreeSet::from([start.0.as_str()]);
        let mut queue = VecDeque::from([(start.1, start.1.name.clone())]);
        while let Some((package, way)) = queue.pop_front() {
            for edge in package.edges.iter().filter(|edge| edge.normal) {
                if !seen.insert(&edge.to) {
                    continue;
                }
                let next = &self.packages[&edge.to];
                let way = format!("{way} → {}", next.name);
                if barred.contains(&next.name.as_str()) {
                    found.push(way);
                } else {
                    queue.push_back((next, way));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A graph of edges `(from, to, kind)`; names that begin with `ratchet` or `xtask` are members.
    fn graph(edges: &[(&str, &str, Option<&str>)]) -> Graph {
        let names: BTreeSet<&str> = edges.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
        let members: Vec<&&str> =
            names.iter().filter(|n| n.starts_with("ratchet") || **n == "xtask").collect();
        let packages: Vec<Value> =
            names.iter().map(|n| json!({"id": n, "name": n, "manifest_path": format!("/w/{}/Cargo.toml", n.replace("ratchet-example", "examples/x"))})).collect();
        let nodes: Vec<Value> = names
            .iter()
            .map(|name| {
                let deps: Vec<Value> = edges
                    .iter()
                    .filter(|(from, _, _)| from == name)
                    .map(|(_, to, kind)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]}))
                    .collect();
                json!({"id": name, "deps": deps})
            })
            .collect();
        Graph::parse(&json!({
            "workspace_members": members, "packages": packages, "resolve": {"nodes": nodes},
        }))
        .unwrap()
    }

    fn verdicts(edges: &[(&str, &str, Option<&str>)]) -> Vec<Violations> {
        let graph = graph(edges);
        RULES.iter().map(|rule| (rule.check)(&graph)).collect()
    }

    const NONE: [Violations; 4] = [vec![], vec![], vec![], vec![]];
    const DEV: Option<&str> = Some("dev");

    #[test]
    fn the_intended_shape_breaks_no_rule() {
        let edges = [
            ("ratchet-api", "serde", None),
            ("ratchet-core", "ratchet-api", None),
            ("ratchet-core", "tokio", None),
            ("ratchet-core", "ratchet-store-memory", DEV),
            ("ratchet-store-memory", "ratchet-api", None),
            ("ratchet-store-memory", "ratchet-tck", DEV),
            ("ratchet-store-postgres", "ratchet-store-core", None),
            ("ratchet-store-postgres", "sqlx", None),
            ("ratchet-store-core", "ratchet-api", None),
            ("ratchet-store-mongodb", "ratchet-api", None),
            ("ratchet-store-mongodb", "mongodb", None),
            ("ratchet-tck", "ratchet-api", None),
            ("ratchet-tck", "tokio", None),
            ("ratchet-api", "tokio", DEV),
            ("xtask", "ratchet-tck", None),
            ("xtask", "ratchet-servers", None),
            ("ratchet-bench", "ratchet-servers", None),
            ("ratchet-suite", "ratchet-servers", None),
            ("ratchet-torture", "ratchet-servers", None),
            ("ratchet-store-core", "ratchet-servers", DEV),
            ("ratchet-store-mongodb", "ratchet-servers", DEV),
            ("ratchet-store-postgres", "ratchet-servers", DEV),
            ("ratchet-cli", "ratchet-servers", DEV),
            ("ratchet-servers", "sqlx", None),
            ("ratchet-servers", "mongodb", None),
        ];
        assert_eq!(verdicts(&edges), NONE);
    }

    #[test]
    fn each_forbidden_edge_is_found() {
        let one = |from, to, kind| layering(&graph(&[(from, to, kind)]));
        for (from, to) in [
            ("ratchet-api", "ratchet-core"),
            ("ratchet-core", "ratchet-store-postgres"),
            ("ratchet-core", "ratchet-store-memory"),
            ("ratchet-store-postgres", "ratchet-core"),
            ("ratchet-store-memory", "ratchet-store-core"),
            ("ratchet-store-mongodb", "ratchet-store-core"),
            ("ratchet-store-sqlite", "ratchet-store-memory"),
            ("ratchet-store-postgres", "ratchet-tck"),
            ("ratchet-cli", "ratchet-tck"),
            ("ratchet-tck", "ratchet-store-memory"),
            ("ratchet-store-postgres", "ratchet-servers"),
            ("ratchet-store-mongodb", "ratchet-servers"),
            ("ratchet-core", "ratchet-servers"),
            ("ratchet-cli", "ratchet-servers"),
            ("ratchet-servers", "ratchet-api"),
        ] {
            assert_eq!(one(from, to, None), [format!("{from} depends on {to}")]);
            assert_eq!(one(from, to, Some("build")), [format!("{from} depends on {to}")]);
        }
        for (from, to) in [
            ("ratchet-core", "ratchet-store-postgres"),
            ("ratchet-store-postgres", "ratchet-core"),
            ("ratchet-core", "ratchet-tck"),
            ("ratchet-core", "ratchet-servers"),
            ("ratchet-store-memory", "ratchet-servers"),
        ] {
            assert_eq!(one(from, to, DEV), [format!("{from} depends on {to} in its tests")]);
        }
    }

    #[test]
    fn a_crate_that_no_one_has_placed_is_found() {
        let found = layering(&graph(&[("ratchet-new", "ratchet-api", None)]));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("ratchet-new is not in LAYERS"));
    }

    #[test]
    fn an_example_may_see_everything_and_test_with_the_suite_but_not_link_it() {
        let example = |kind| layering(&graph(&[("ratchet-example", "ratchet-tck", kind)]));
        assert!(example(DEV).is_empty());
        assert_eq!(example(None), ["ratchet-example depends on ratchet-tck"]);
        assert!(layering(&graph(&[("ratchet-example", "ratchet-store-postgres", None)])).is_empty());
    }

    #[test]
    fn a_runtime_or_driver_below_the_contract_is_found_however_deep() {
        let found = verdicts(&[("ratchet-api", "helper", None), ("helper", "tokio", None)]);
        assert_eq!(found[1], ["ratchet-api → helper → tokio"]);
        for driver in DRIVERS {
            let found = verdicts(&[("ratchet-api", driver, None)]);
            assert_eq!(found[1], [format!("ratchet-api → {driver}")]);
        }
    }

    #[test]
    fn a_driver_below_the_engine_is_found_but_its_runtime_is_fine() {
        let found = verdicts(&[("ratchet-core", "tokio", None), ("ratchet-core", "sqlx", None)]);
        assert_eq!(found[2], ["ratchet-core → sqlx"]);
    }

    #[test]
    fn sql_below_the_mongodb_store_is_found() {
        let found = verdicts(&[("ratchet-store-mongodb", "sqlx", None)]);
        assert_eq!(found[3], ["ratchet-store-mongodb → sqlx"]);
    }

    #[test]
    fn a_version_outside_the_workspace_table_is_found() {
        let manifest: toml::Table = "
            [dependencies]
            good.workspace = true
            also = { workspace = true, features = ['x'] }
            bad = '1'
            [dev-dependencies]
            worse = { version = '2' }
            fine = { path = '.', features = ['x'] }
            [target.'cfg(unix)'.build-dependencies]
            worst = { path = '../x' }
        "
        .parse()
        .unwrap();
        assert_eq!(
            own_versions("a/Cargo.toml", &manifest),
            [
                "a/Cargo.toml: `bad` in [dependencies]",
                "a/Cargo.toml: `worse` in [dev-dependencies]",
                "a/Cargo.toml: `worst` in [build-dependencies]",
            ]
        );
    }
}
