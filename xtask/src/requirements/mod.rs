//! The tests that show each requirement, and whether these tests can fail: `cargo xtask requirements`.
//!
//! A requirement is *shown* if a test that names it, and looks where a user would see it ([`Level`]), has caught a
//! mutant, and *asserted only* if none of these tests has. It is shown *store only* if a store does it and no test
//! shows that the engine makes use of it, *in part* if a part of it does not exist yet, and *open* without a test. What
//! only a reader can check is shown *by inspection* of a page. `mutants.lock` and `mutants.generated.toml` have the
//! tests that catch each mutant.

mod document;
mod level;
mod sources;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use self::{
    document::{Item, LAST},
    level::Level,
    sources::Test,
};
use crate::mutants::{self, Generated, History, Lock};

const DOCUMENT: &str = "docs/requirements.md";

/// The arguments of `cargo xtask requirements`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask requirements\n  \
    cargo xtask requirements --json target/requirements.json")]
pub(crate) struct RequirementsCommand {
    /// Also write the whole table to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    number: u16,
    text: String,
    /// The level at which a user would see it.
    level: Level,
    state: State,
    /// The part of it that does not exist yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'static str>,
    /// The page that describes it, if no test can show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    tests: Vec<String>,
    /// Mutants that these tests have caught.
    kills: Vec<String>,
    /// The commit on which the newest of these was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<String>,
}

/// A mutant caught by tests.
#[derive(Debug, Clone)]
struct Kill {
    mutant: String,
    caught_by: Vec<String>,
    verified: String,
    /// The number of commits since it was verified.
    age: Option<usize>,
}

/// The state of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Shown,
    AssertedOnly,
    InPart,
    StoreOnly,
    ByInspection,
    Open,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Shown => "shown",
            Self::AssertedOnly => "asserted only",
            Self::InPart => "in part",
            Self::StoreOnly => "store only",
            Self::ByInspection => "by inspection",
            Self::Open => "open",
        })
    }
}

/// Runs the command. Requirements that are not shown are no error; a malformed document is.
pub(crate) fn run(command: &RequirementsCommand, workspace: &Path) -> Result<()> {
    let text = fs::read_to_string(workspace.join(DOCUMENT)).context(DOCUMENT)?;
    let items = document::parse(&text)?;
    check_pages(&items, |page| workspace.join(page).is_file())?;
    let tests = tests(workspace)?;
    check_numbers(&tests)?;
    let kills = kills(workspace)?;
    let rows: Vec<Row> = items.into_iter().map(|item| row(item, &tests, &kills)).collect();
    for row in &rows {
        println!("{}", line(row));
    }
    println!("{}", closing(&rows));
    if let Some(file) = &command.json {
        fs::write(file, serde_json::to_vec_pretty(&rows)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The cases of the suite and the marked unit tests.
fn tests(workspace: &Path) -> Result<Vec<Test>> {
    fn facts<F>(case: &ratchet_tck::Case<F>) -> Test {
        Test { id: case.id(), numbers: case.shows.to_vec() }
    }
    let stores = ratchet_tck::cases::all().map(facts);
    let coordinators = ratchet_tck::coordinator::CASES.iter().map(facts);
    let identities = ratchet_tck::identity::CASES.iter().map(facts);
    let cases = stores.chain(coordinators).chain(identities);
    Ok(cases.chain(sources::scan(workspace)?).collect())
}

fn check_pages(items: &[Item], exists: impl Fn(&str) -> bool) -> Result<()> {
    for item in items {
        if let Some(page) = item.page.as_ref().filter(|page| !exists(page)) {
            bail!("S{}: the page {page} does not exist", item.number);
        }
    }
    Ok(())
}

fn check_numbers(tests: &[Test]) -> Result<()> {
    for test in tests {
        if let Some(number) = test.numbers.iter().find(|number| !(1..=LAST).contains(*number)) {
            bail!("{} shows S{number}, which is not between S1 and S{LAST}", test.id);
        }
    }
    Ok(())
}

/// The mutants of the bank that were caught on the current sources, and the caught generated ones.
fn kills(workspace: &Path) -> Result<Vec<Kill>> {
    let (lock, generated, history) =
        (Lock::read(workspace)?, Generated::read(workspace)?, History::of(workspace));
    let changed = mutants::changed(workspace, &lock)?;
    if !changed.is_empty() {
        println!(
            "mutants: {} of the bank have no result for these sources and do not count; \
             `cargo xtask tck --mutants` tries them",
            changed.len()
        );
    }
    let kill = |mutant: &str, caught_by: &[String], verified: &str| Kill {
        mutant: mutant.to_owned(),
        caught_by: caught_by.to_vec(),
        verified: verified.to_owned(),
        age: history.age(verified),
    };
    let bank = lock.entries.iter().filter(|entry| !changed.contains(&entry.name));
    let mut kills: Vec<Kill> =
        bank.map(|entry| kill(&entry.name, &entry.caught_by, &entry.verified)).collect();
    for file in &generated.files {
        let name = |description: &str| format!("{}: {description}", file.path);
        kills.extend(file.caught.iter().map(|(mutant, by)| kill(&name(mutant), by, &file.verified)));
    }
    Ok(kills)
}

fn row(item: Item, tests: &[Test], kills: &[Kill]) -> Row {
    let (level, missing) = (level::of_item(item.number), level::missing_part(item.number));
    let named = tests.iter().filter(|test| test.numbers.contains(&item.number)).map(|test| test.id.clone());
    let (enough, lower): (Vec<String>, Vec<String>) = named.partition(|id| level::of_test(id) >= level);
    let is_lower = enough.is_empty() && !lower.is_empty();
    let tests = if is_lower { lower } else { enough };
    let caught: Vec<&Kill> =
        kills.iter().filter(|kill| kill.caught_by.iter().any(|by| tests.contains(by))).collect();
    let state = match (tests.is_empty(), caught.is_empty()) {
        (false, _) if is_lower => State::StoreOnly,
        (false, _) if missing.is_some() => State::InPart,
        (false, false) => State::Shown,
        (false, true) => State::AssertedOnly,
        (true, _) if item.page.is_some() => State::ByInspection,
        (true, _) => State::Open,
    };
    let newest = caught.iter().min_by_key(|kill| kill.age.unwrap_or(usize::MAX));
    let verified = newest.map(|kill| kill.verified.clone());
    let kills = caught.iter().map(|kill| kill.mutant.clone()).collect();
    let Item { number, text, page } = item;
    Row { number, text, level, state, missing, page, tests, kills, verified }
}

fn line(row: &Row) -> String {
    let evidence = match (&row.state, &row.page) {
        (State::ByInspection, Some(page)) => page.clone(),
        (State::Open, _) => shortened(&row.text),
        (State::InPart, _) => format!("{}: {}", some_of(&row.tests), row.missing.unwrap_or_default()),
        _ => some_of(&row.tests),
    };
    let kills = match row.kills.as_slice() {
        [] => String::new(),
        kills => format!("  kills {}", some_of(kills)),
    };
    let verified = row.verified.as_ref().map(|commit| format!("  verified {commit}")).unwrap_or_default();
    let number = format!("S{}", row.number);
    format!("{number:<5} {:<8} {:<14} {evidence}{kills}{verified}", row.level, row.state)
}

fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 90;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The first name, and the number of others.
fn some_of(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first, more @ ..] => format!("{first} (+{})", more.len()),
    }
}

fn closing(rows: &[Row]) -> String {
    let count = |state| rows.iter().filter(|row| row.state == state).count();
    format!(
        "shown {}, asserted only {}, in part {}, store only {}, by inspection {}, open {}, of {}",
        count(State::Shown),
        count(State::AssertedOnly),
        count(State::InPart),
        count(State::StoreOnly),
        count(State::ByInspection),
        count(State::Open),
        rows.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u16, page: Option<&str>) -> Item {
        Item { number, text: "It holds.".into(), page: page.map(str::to_owned) }
    }

    fn test(id: &str, numbers: &[u16]) -> Test {
        Test { id: id.into(), numbers: numbers.to_vec() }
    }

    fn kill(mutant: &str, age: usize) -> Kill {
        let (mutant, caught_by) = (mutant.into(), vec!["claim::once".to_owned()]);
        Kill { mutant, caught_by, verified: format!("c{age}"), age: Some(age) }
    }

    #[test]
    fn a_requirement_is_shown_by_a_test_that_caught_something() {
        let tests = [test("claim::once", &[150]), test("claim::idle", &[150, 151])];
        let rows: Vec<Row> = [item(150, None), item(151, None), item(3, None), item(187, Some("docs/a.md"))]
            .into_iter()
            .map(|item| row(item, &tests, &[kill("claims-twice", 3), kill("claims-none", 1)]))
            .collect();
        let lines: Vec<String> = rows.iter().map(line).collect();
        let expected = [
            "S150  store    shown          claim::once (+1)  kills claims-twice (+1)  verified c1",
            "S151  store    asserted only  claim::idle",
            "S3    engine   open           It holds.",
            "S187  docs     by inspection  docs/a.md",
        ];
        assert_eq!(lines, expected);
        let totals = "shown 1, asserted only 1, in part 0, store only 0, by inspection 1, open 1, of 4";
        assert_eq!(closing(&rows), totals);
    }

    #[test]
    fn a_test_below_the_level_of_a_requirement_does_not_show_it() {
        let state = |number, tests: &[Test]| row(item(number, None), tests, &[kill("m", 1)]).state;
        let store = test("claim::once", &[2, 143, 150]);
        assert_eq!(state(143, std::slice::from_ref(&store)), State::StoreOnly, "whatever it caught");
        assert_eq!(state(150, std::slice::from_ref(&store)), State::Shown);
        let engine = test("ratchet-suite::cases::submit::runs", &[2, 143]);
        assert_eq!(
            state(143, &[store.clone(), engine.clone()]),
            State::AssertedOnly,
            "the other does not count"
        );
        assert_eq!(state(2, &[store, engine]), State::InPart);
    }

    #[test]
    fn a_test_names_only_numbers_that_exist() {
        assert!(check_numbers(&[test("a", &[1, 194])]).is_ok());
        let error = check_numbers(&[test("claim::odd", &[195])]).unwrap_err().to_string();
        assert_eq!(error, "claim::odd shows S195, which is not between S1 and S194");
        assert!(check_numbers(&[test("a", &[0])]).is_err());
    }

    #[test]
    fn a_page_to_inspect_exists() {
        let items = [item(187, Some("docs/a.md"))];
        assert!(check_pages(&items, |_| true).is_ok());
        let error = check_pages(&items, |_| false).unwrap_err().to_string();
        assert_eq!(error, "S187: the page docs/a.md does not exist");
    }

    #[test]
    fn the_document_of_this_checkout_is_in_order() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let items = document::parse(&fs::read_to_string(root.join(DOCUMENT)).unwrap()).unwrap();
        assert_eq!(items.len(), 194);
        check_numbers(&tests(&root).unwrap()).unwrap();
    }
}
