//! Mutants that cargo-mutants generates, for code that it can parse: `cargo xtask tck --generated`.
//!
//! They pin no text of the sources, so a refactoring breaks none of them. Developers have the tool and commit the
//! result, `mutants.generated.toml`; CI does not have it and only reads the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{
    bank::{Change, Mutant, Span, Suite},
    committed,
    trees::{Trees, folder_of},
    worker::Fate,
};

const FILE: &str = "mutants.generated.toml";
const HEADER: &str = "\
# What cargo-mutants changed in the files of .cargo/mutants.toml, and the tests that noticed. Written by
# `cargo xtask tck --generated`. Only one thing is written by hand: move a mutant from `missed` to `equivalent` with the
# reason why no test can tell it from the original; a later run keeps it there.
";
const HOW_TO_INSTALL: &str = "cargo-mutants does not run; `cargo install cargo-mutants --locked` brings it";

/// The whole file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generated {
    #[serde(default, rename = "file")]
    pub(crate) files: Vec<Results>,
}

/// The known results for the mutants of one source file, keyed by the tool's description of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Results {
    pub(crate) path: String,
    /// The hash of the source trees that the results depend on.
    hash: String,
    /// The commit on which, or on top of which, they were tried.
    pub(crate) verified: String,
    /// The number of mutants that do not compile and so show nothing.
    unviable: usize,
    /// The mutants that no test has caught.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missed: Vec<String>,
    /// The tests that caught each; none if the suite hung or crashed.
    #[serde(default)]
    pub(crate) caught: BTreeMap<String, Vec<String>>,
    /// The reasons why no test can tell these from the original.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) equivalent: BTreeMap<String, String>,
}

impl Generated {
    pub(crate) fn read(workspace: &Path) -> Result<Self> {
        committed::read(workspace, FILE)
    }

    pub(crate) fn write(&self, workspace: &Path) -> Result<()> {
        committed::write(workspace, FILE, HEADER, self)
    }

    /// The areas of the suite whose cases have caught a mutant.
    pub(crate) fn areas(&self) -> BTreeSet<&str> {
        let caught = self.files.iter().flat_map(|file| file.caught.values().flatten());
        caught.filter_map(|test| test.split_once("::")).map(|(area, _)| area).collect()
    }

    /// Whether the results of a file are still valid.
    pub(crate) fn stands(&self, path: &str, hash: &str) -> bool {
        self.files.iter().any(|file| file.path == path && file.hash == hash)
    }

    /// Replaces the results of a file, and keeps the reasons of the old ones.
    pub(crate) fn merge(&mut self, mut new: Results) {
        if let Some(old) = self.files.iter().position(|file| file.path == new.path) {
            new.take_over_reasons(&self.files.remove(old));
        }
        self.files.push(new);
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Drops files that have no mutants any more.
    pub(crate) fn retain(&mut self, paths: &BTreeSet<&str>) {
        self.files.retain(|file| paths.contains(file.path.as_str()));
    }
}

impl Results {
    /// Sorts the mutants of a file by their fates.
    pub(crate) fn new(path: &str, hash: String, verified: &str, fates: Vec<(Mutant, Fate)>) -> Self {
        let mut new = Self { path: path.into(), hash, verified: verified.into(), ..Self::default() };
        for (mutant, fate) in fates {
            match fate {
                Fate::Caught(by) | Fate::Hung(by) => drop(new.caught.insert(mutant.name, super::sample(&by))),
                Fate::Crashed => drop(new.caught.insert(mutant.name, Vec::new())),
                Fate::Missed => new.missed.push(mutant.name),
                Fate::Broken(_) => new.unviable += 1,
            }
        }
        new.missed.sort();
        new
    }

    /// Moves missed mutants to `equivalent` if the old results have a reason, also under a function's former name.
    fn take_over_reasons(&mut self, old: &Self) {
        let renamed = self.renamed(old);
        let reasons = old.equivalent.iter().map(|(name, reason)| {
            let function = function_of(name);
            let now = renamed.get(function).map_or(name.clone(), |new| name.replacen(function, new, 1));
            (now, reason)
        });
        for (name, reason) in reasons.collect::<Vec<_>>() {
            if let Some(at) = self.missed.iter().position(|missed| *missed == name) {
                self.missed.remove(at);
                self.equivalent.insert(name, reason.clone());
            }
        }
    }

    /// The new name of each removed function, if another one has mutants of the same kinds.
    fn renamed<'a>(&'a self, old: &'a Self) -> BTreeMap<&'a str, &'a str> {
        let (before, now) = (old.kinds(), self.kinds());
        let gone = before.iter().filter(|(function, _)| !now.contains_key(*function));
        let appeared = |kinds: &BTreeSet<String>| {
            let mut fitting =
                now.iter().filter(|(function, found)| !before.contains_key(*function) && *found == kinds);
            fitting.next().filter(|_| fitting.next().is_none()).map(|(function, _)| *function)
        };
        gone.filter_map(|(function, kinds)| Some((*function, appeared(kinds)?))).collect()
    }

    /// The kinds of mutants of each function.
    fn kinds(&self) -> BTreeMap<&str, BTreeSet<String>> {
        let mut kinds: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for name in self.caught.keys().chain(&self.missed).chain(self.equivalent.keys()) {
            let function = function_of(name);
            kinds.entry(function).or_default().insert(name.replacen(function, "", 1));
        }
        kinds
    }
}

/// The function in a description: `replace < with <= in FUNCTION`, `replace FUNCTION -> u8 with 0`.
fn function_of(name: &str) -> &str {
    let name = name.split(" #").next().unwrap_or(name);
    if let Some((_, function)) = name.rsplit_once(" in ") {
        return function;
    }
    let rest = name.strip_prefix("replace ").unwrap_or(name);
    rest.split(" -> ").next().and_then(|rest| rest.split(" with ").next()).unwrap_or(rest)
}

/// One line of the tool's list.
#[derive(Debug, Deserialize)]
struct Listed {
    file: String,
    name: String,
    replacement: String,
    span: ListedSpan,
}

#[derive(Debug, Deserialize)]
struct ListedSpan {
    start: Position,
    end: Position,
}

#[derive(Debug, Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

/// All mutants that the tool generates, by file.
pub(crate) fn list(workspace: &Path) -> Result<BTreeMap<String, Vec<Mutant>>> {
    let out = crate::cargo().args(["mutants", "--list", "--json"]).current_dir(workspace).output();
    let out = out.context(HOW_TO_INSTALL)?;
    if !out.status.success() {
        bail!("{HOW_TO_INSTALL}\n{}", String::from_utf8_lossy(&out.stderr).trim());
    }
    parse(&out.stdout)
}

fn parse(json: &[u8]) -> Result<BTreeMap<String, Vec<Mutant>>> {
    let listed: Vec<Listed> = serde_json::from_slice(json).context("the list of cargo-mutants")?;
    let mut files: BTreeMap<String, Vec<Mutant>> = BTreeMap::new();
    for Listed { file, name, replacement, span } in listed {
        let mutants = files.entry(file.clone()).or_default();
        // Without the position, which every other change of the file moves.
        let description = name.rsplit_once(": ").map_or(name.as_str(), |(_, text)| text).to_owned();
        let alike = |m: &&Mutant| m.name == description || m.name.starts_with(&format!("{description} #"));
        let name = match mutants.iter().filter(alike).count() {
            0 => description,
            count => format!("{description} #{}", count + 1),
        };
        let Position { line, column } = span.start;
        let (start, end) = ((line, column), (span.end.line, span.end.column));
        let (area, rule, only) = (String::new(), String::new(), None);
        let suite = *suites(&file).first().with_context(|| format!("{file} has no tests"))?;
        let change = Change::Span(Span { start, end, replacement });
        mutants.push(Mutant { area, name, rule, file, change, suite, only });
    }
    Ok(files)
}

/// The suites that must catch a change of this file: each later one gets only what those before have missed.
pub(crate) fn suites(file: &str) -> &'static [Suite] {
    match folder_of(file) {
        "ratchet-api" => &[Suite::Api, Suite::Memory],
        "ratchet-store-memory" => &[Suite::Memory],
        "ratchet-core" => &[Suite::Core, Suite::Engine],
        _ => &[],
    }
}

/// Whether another suite follows if that of this mutant misses it.
pub(crate) fn is_tried_further(mutant: &Mutant) -> bool {
    mutant.is_generated() && suites(&mutant.file).last() != Some(&mutant.suite)
}

/// The current hash for the results of a file.
pub(crate) fn hash(file: &str, trees: &Trees<'_>) -> Result<String> {
    let tests = suites(file).iter().map(|suite| suite.tests_of());
    let folders: BTreeSet<&str> = tests.chain([folder_of(file)]).collect();
    trees.hash(&[file], &folders.into_iter().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn results(caught: &[&str], missed: &[&str], equivalent: &[(&str, &str)]) -> Results {
        let caught = caught.iter().map(|name| ((*name).to_owned(), names(&["claim::a"]))).collect();
        let equivalent = equivalent.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned()));
        let (missed, equivalent) = (names(missed), equivalent.collect());
        Results { path: "ratchet-api/src/a.rs".into(), caught, missed, equivalent, ..Results::default() }
    }

    #[test]
    fn the_tools_list_becomes_mutants_that_do_not_know_their_line() {
        let one = r#"{"file": "ratchet-api/src/a.rs", "name": "ratchet-api/src/a.rs:61:39: replace < with <= in A::b",
            "replacement": "<=", "span": {"start": {"line": 61, "column": 39}, "end": {"line": 61, "column": 40}}}"#;
        let files = parse(format!("[{one}, {}]", one.replace("39", "45")).as_bytes()).unwrap();
        let mutants = &files["ratchet-api/src/a.rs"];
        let names: Vec<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        assert_eq!(names, ["replace < with <= in A::b", "replace < with <= in A::b #2"]);
        assert_eq!(mutants[0].suite, Suite::Api);
        let span = Span { start: (61, 39), end: (61, 40), replacement: "<=".into() };
        assert_eq!(mutants[0].change, Change::Span(span));
        assert!(parse(one.replace("ratchet-api", "xtask").as_bytes()).is_err());
    }

    #[test]
    fn a_description_names_its_function() {
        assert_eq!(function_of("replace < with <= in A::b"), "A::b");
        assert_eq!(function_of("delete ! in A::b #2"), "A::b");
        assert_eq!(function_of("replace A::b -> Option<u64> with Some(0)"), "A::b");
        assert_eq!(function_of("replace A::b with ()"), "A::b");
    }

    #[test]
    fn a_reason_stays_with_its_mutant() {
        let mut generated = Generated::default();
        generated.merge(results(&[], &[], &[("delete ! in f", "same"), ("delete - in f", "gone")]));
        generated.merge(results(&["replace f with ()"], &["delete ! in f", "delete ! in g"], &[]));
        let expected = results(&["replace f with ()"], &["delete ! in g"], &[("delete ! in f", "same")]);
        assert_eq!(generated.files, [expected]);
    }

    #[test]
    fn a_mutant_that_a_test_now_catches_needs_no_reason() {
        let mut generated = Generated::default();
        generated.merge(results(&[], &[], &[("delete ! in f", "same")]));
        generated.merge(results(&["delete ! in f"], &[], &[]));
        assert_eq!(generated.files, [results(&["delete ! in f"], &[], &[])]);
    }

    #[test]
    fn a_function_that_is_renamed_keeps_its_reasons() {
        let mut generated = Generated::default();
        generated.merge(results(
            &["replace old -> u8 with 0", "delete ! in g"],
            &[],
            &[("delete ! in old", "same")],
        ));
        generated.merge(results(&["replace new -> u8 with 0", "delete ! in g"], &["delete ! in new"], &[]));
        let expected =
            results(&["replace new -> u8 with 0", "delete ! in g"], &[], &[("delete ! in new", "same")]);
        assert_eq!(generated.files, [expected]);
    }

    #[test]
    fn another_function_gets_no_reason_of_one_that_is_gone() {
        let mut generated = Generated::default();
        generated.merge(results(&["replace old -> u8 with 0"], &[], &[("delete ! in old", "same")]));
        generated.merge(results(&[], &["delete ! in other"], &[]));
        assert_eq!(generated.files, [results(&[], &["delete ! in other"], &[])]);
    }

    #[test]
    fn fates_are_sorted_out() {
        let mutant = |name: &str| super::super::tests::bank(&[name]).remove(0);
        let fates = vec![
            (mutant("a"), Fate::Caught(names(&["claim::a"]))),
            (mutant("b"), Fate::Missed),
            (mutant("c"), Fate::Broken("error".into())),
            (mutant("d"), Fate::Crashed),
        ];
        let new = Results::new("a.rs", "1".into(), "c0", fates);
        assert_eq!((new.unviable, new.missed), (1, names(&["b"])));
        assert_eq!(new.caught.into_keys().collect::<Vec<_>>(), ["a", "d"]);
    }
}
