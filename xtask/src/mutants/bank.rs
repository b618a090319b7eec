//! The bank: broken stores and engines as small text edits, one file per area.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{servers::Server, test::SHARED_SQL};

/// Broken stores, by the areas of the conformance suite.
const STORES: &str = "ratchet-tck/mutants";
/// Broken engines.
const ENGINES: &str = "ratchet-suite/mutants";
/// Schemas and statements that return the right rows, but by the wrong plan.
const PLANS: &str = "ratchet-store-sqlite/mutants";
/// Wrong schemas, migrations and error mappings.
const SQL: &str = "ratchet-store-core/mutants";
/// Statements and indexes of the store on MongoDB.
const MONGODB: &str = "ratchet-store-mongodb/mutants";
/// The area of mutants of the pure rules, which the cases of stores cannot detect.
const PURE: &str = "api";

/// One wrong change, and the rule that it breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) area: String,
    pub(crate) name: String,
    pub(crate) rule: String,
    pub(crate) file: String,
    pub(crate) change: Change,
    pub(crate) suite: Suite,
    /// Only tests with this in their name run: the others do not concern the file.
    pub(crate) only: Option<String>,
}

/// The change of a mutant to its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Texts are replaced wherever they occur.
    Texts(Vec<Edit>),
    /// The code between two positions is replaced.
    Span(Span),
}

/// A text that occurs in the file exactly once, and its replacement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    find: String,
    replace: String,
}

/// The code between two positions, each a line and a column counted from 1, and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: (usize, usize),
    pub(crate) end: (usize, usize),
    pub(crate) replacement: String,
}

/// The tests that must catch a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Suite {
    /// The conformance suite on the memory store.
    Memory,
    /// The unit tests of `ratchet-api`.
    Api,
    /// The unit tests of `ratchet-core`.
    Core,
    /// The engine's behaviours on the memory store.
    Engine,
    /// The plans of SQLite.
    Plans,
    /// The conformance suite on MongoDB.
    Mongodb,
    /// The plans of MongoDB.
    Explain,
    /// The unit tests of `ratchet-store-core`.
    Sql,
    /// The migrator on every SQL server.
    Migrate,
    /// The texts of `ddl/` on every SQL server.
    Ddl,
}

impl Suite {
    /// The crate that holds the tests.
    pub(crate) const fn tests_of(self) -> &'static str {
        match self {
            Self::Memory | Self::Mongodb => "ratchet-tck",
            Self::Explain => "ratchet-store-mongodb",
            Self::Api => "ratchet-api",
            Self::Core => "ratchet-core",
            Self::Engine => "ratchet-suite",
            Self::Plans => "ratchet-store-sqlite",
            Self::Sql | Self::Migrate | Self::Ddl => "ratchet-store-core",
        }
    }

    /// The servers that it needs.
    pub(crate) const fn servers(self) -> &'static [Server] {
        match self {
            Self::Migrate | Self::Ddl => SHARED_SQL.1,
            Self::Mongodb | Self::Explain => &[Server::Mongodb],
            Self::Memory | Self::Api | Self::Core | Self::Engine | Self::Plans | Self::Sql => &[],
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mutant: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    rule: String,
    file: String,
    find: String,
    replace: String,
    /// Further edits, for a rule that the file implements in several places.
    #[serde(default)]
    also: Vec<Edit>,
    suite: Option<Suite>,
    only: Option<String>,
}

/// Reads the bank and checks that every mutant still fits the sources, and that every area of the suite can fail: that
/// it has a mutant of its own, or one of `generated` that its cases caught.
pub(crate) fn load(workspace: &Path, generated: &BTreeSet<&str>) -> Result<Vec<Mutant>> {
    let stores = read(workspace, STORES, Suite::Memory)?;
    let engines = read(workspace, ENGINES, Suite::Core)?;
    let plans = read(workspace, PLANS, Suite::Plans)?;
    let sql = read(workspace, SQL, Suite::Sql)?;
    let mongodb = read(workspace, MONGODB, Suite::Mongodb)?;
    let mut areas: BTreeSet<&str> = ratchet_tck::cases::all().map(|case| case.area).collect();
    areas.extend(ratchet_tck::coordinator::CASES.iter().map(|case| case.area));
    let mut problems = strange_areas(&stores, &areas, generated);
    let bank: Vec<Mutant> =
        stores.into_iter().chain(engines).chain(plans).chain(sql).chain(mongodb).collect();
    problems.extend(stale(&bank, |file| fs::read_to_string(workspace.join(file)).ok()));
    if !problems.is_empty() {
        bail!("the bank of mutants is not in order:\n  {}", problems.join("\n  "));
    }
    Ok(bank)
}

/// Reads one folder, whose mutants must be caught by `usual` unless they name another suite.
fn read(workspace: &Path, folder: &str, usual: Suite) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for path in files(&workspace.join(folder))? {
        let area = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path)?;
        mutants.extend(parse(&area, &text, usual).with_context(|| format!("{folder}/{area}.toml"))?);
    }
    Ok(mutants)
}

fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "toml"));
    files.sort();
    Ok(files)
}

fn parse(area: &str, text: &str, usual: Suite) -> Result<Vec<Mutant>> {
    let file: File = toml::from_str(text)?;
    let mutant = |Entry { name, rule, file, find, replace, also, suite, only }| {
        let change = Change::Texts([Edit { find, replace }].into_iter().chain(also).collect());
        let suite = suite.unwrap_or(usual);
        Mutant { area: area.to_owned(), name, rule, file, change, suite, only }
    };
    Ok(file.mutant.into_iter().map(mutant).collect())
}

/// Finds areas without mutants and mutants without an area.
fn strange_areas(stores: &[Mutant], areas: &BTreeSet<&str>, generated: &BTreeSet<&str>) -> Vec<String> {
    let mut problems = Vec::new();
    for Mutant { area, name, .. } in stores {
        if !areas.contains(area.as_str()) && area != PURE {
            problems.push(format!("{area}: `{name}` belongs to an area that the suite does not have"));
        }
    }
    let covered: BTreeSet<&str> = stores.iter().map(|mutant| mutant.area.as_str()).collect();
    let bare = areas.iter().filter(|area| !covered.contains(*area) && !generated.contains(*area));
    problems.extend(bare.map(|area| format!("{area}: no mutant shows that its cases can fail")));
    problems
}

/// Finds mutants that do not fit the sources: their rule is no longer tested.
fn stale(bank: &[Mutant], read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names = BTreeMap::new();
    for mutant in bank {
        let Mutant { area, name, .. } = mutant;
        if let Some(first) = names.insert(name, area) {
            problems.push(format!("{area}: `{name}` is the name of a mutant of {first} already"));
        }
        let fits = read(&mutant.file)
            .with_context(|| format!("{} does not exist", mutant.file))
            .and_then(|text| mutant.apply(&text));
        if let Err(error) = fits {
            problems.push(format!("{area}: `{name}`: {error:#}"));
        }
    }
    problems
}

impl Mutant {
    /// The text of its file with the change applied.
    pub(crate) fn apply(&self, text: &str) -> Result<String> {
        let edit = |text: String, edit: &Edit| match text.matches(&edit.find).count() {
            _ if edit.find == edit.replace => bail!("it changes nothing"),
            1 => Ok(text.replacen(&edit.find, &edit.replace, 1)),
            count => bail!("its text occurs {count} times in {}, not once", self.file),
        };
        match &self.change {
            Change::Texts(edits) => edits.iter().try_fold(text.to_owned(), edit),
            Change::Span(span) => span.apply(text).with_context(|| format!("`{}`: {}", self.name, self.file)),
        }
    }

    /// Whether cargo-mutants made it; those of a bank are bound to texts.
    pub(crate) fn is_generated(&self) -> bool {
        matches!(self.change, Change::Span(_))
    }

    /// The fields that identify this mutant, as text.
    pub(crate) fn definition(&self) -> String {
        let Self { file, change, suite, only, .. } = self;
        format!("{file}\n{change:?}\n{suite:?}\n{only:?}")
    }
}

impl Span {
    fn apply(&self, text: &str) -> Result<String> {
        let (start, end) = (offset(text, self.start), offset(text, self.end));
        let (start, end) = start.zip(end).filter(|(s, e)| s <= e).context("it has no such position")?;
        Ok(format!("{}{}{}", &text[..start], self.replacement, &text[end..]))
    }
}

/// The byte offset of a position.
fn offset(text: &str, (line, column): (usize, usize)) -> Option<usize> {
    let mut lines = text.split_inclusive('\n');
    let before: usize = lines.by_ref().take(line.checked_sub(1)?).map(str::len).sum();
    let line = lines.next()?;
    let within = line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(column.checked_sub(1)?)?;
    Some(before + within)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = r#"
        [[mutant]]
        name = "claim-ignores-due"
        rule = "claim.due: only due jobs are claimed"
        file = "claim.rs"
        find = "due <= now"
        replace = "true"
    "#;

    fn claim() -> Vec<Mutant> {
        parse("claim", CLAIM, Suite::Memory).unwrap()
    }

    fn check(bank: &[Mutant], source: &str) -> Vec<String> {
        stale(bank, |file| (file == "claim.rs").then(|| source.to_owned()))
    }

    #[test]
    fn a_mutant_changes_the_one_place_that_it_names() {
        let [mutant] = claim().try_into().unwrap();
        assert_eq!(mutant.suite, Suite::Memory);
        let [other] =
            parse("claim", &format!("{CLAIM}\nsuite = \"engine\""), Suite::Core).unwrap().try_into().unwrap();
        assert_eq!(other.suite, Suite::Engine);
        assert_eq!(mutant.apply("if due <= now {").unwrap(), "if true {");
    }

    #[test]
    fn a_mutant_may_change_what_stands_between_two_positions() {
        let change = |start, end, replacement: &str| {
            let span = Span { start, end, replacement: replacement.into() };
            Mutant { change: Change::Span(span), ..claim().remove(0) }.apply("a < b\nü == d\n").ok()
        };
        assert_eq!(change((1, 3), (1, 4), ">=").unwrap(), "a >= b\nü == d\n");
        assert_eq!(change((2, 3), (2, 5), "!=").unwrap(), "a < b\nü != d\n");
        assert_eq!(change((1, 5), (2, 2), "x").unwrap(), "a < x == d\n");
        assert_eq!(change((1, 5), (4, 1), "x"), None);
        assert_eq!(change((1, 5), (1, 9), "x"), None);
    }

    #[test]
    fn a_mutant_may_change_several_places() {
        let text = format!("{CLAIM}\nalso = [{{ find = \"due > now\", replace = \"false\" }}]");
        let [mutant] = parse("claim", &text, Suite::Memory).unwrap().try_into().unwrap();
        assert_eq!(mutant.apply("due <= now && !(due > now)").unwrap(), "true && !(false)");
        assert!(mutant.apply("due <= now").is_err());
    }

    #[test]
    fn a_mutant_that_no_longer_fits_is_stale() {
        let stale = |source| check(&claim(), source);
        assert_eq!(stale("due <= now"), Vec::<String>::new());
        let gone = "claim: `claim-ignores-due`: its text occurs 0 times in claim.rs, not once";
        assert_eq!(stale("due < now"), [gone]);
        assert!(stale("due <= now || due <= now")[0].contains("occurs 2 times"));
        let mut elsewhere = claim();
        elsewhere[0].file = "gone.rs".into();
        let missing = "claim: `claim-ignores-due`: gone.rs does not exist";
        assert_eq!(check(&elsewhere, ""), [missing]);
    }

    #[test]
    fn names_are_unique_and_areas_those_of_the_suite() {
        let twice: Vec<Mutant> = claim().into_iter().chain(claim()).collect();
        let found = check(&twice, "due <= now");
        assert_eq!(found, ["claim: `claim-ignores-due` is the name of a mutant of claim already"]);
        let found = strange_areas(&claim(), &BTreeSet::from(["lock", "pause"]), &BTreeSet::from(["pause"]));
        let strange = "claim: `claim-ignores-due` belongs to an area that the suite does not have";
        assert_eq!(found, [strange, "lock: no mutant shows that its cases can fail"]);
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let refused = |text: &str| parse("claim", text, Suite::Memory).is_err();
        assert!(refused(&CLAIM.replace("replace", "replacement")));
        assert!(refused(&format!("{CLAIM}\nsuite = \"postgres\"")));
    }
}
