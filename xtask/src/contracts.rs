//! Compares the store contract with the cases of the suite: `cargo xtask tck --contracts`.
//!
//! The contract is prose in `ratchet-api/src/store/*.rs`, and in the plug points that have a suite: bullets below
//! `# Contract`, each with an id. A contract without a case, and a case without a contract, are both mistakes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// The most requirement numbers that one case may name: more means that it shows too much at once.
const MOST_NUMBERS: usize = 3;

/// Plug points with a suite of their own.
const PLUGS: [&str; 2] = ["ratchet-api/src/spi/cluster.rs", "ratchet-api/src/spi/identity.rs"];

/// One source file of the contract.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The facts about a case of the suite that matter here.
#[derive(Debug)]
pub(crate) struct CaseFacts {
    id: String,
    proves: Vec<String>,
    shows: usize,
}

/// A position in the sources.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceLine {
    path: PathBuf,
    line: usize,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// One bullet below a `# Contract`.
#[derive(Debug)]
struct Bullet {
    place: SourceLine,
    /// `None` for a bullet without an id.
    id: Option<String>,
}

/// A trait method without a contract.
#[derive(Debug)]
struct Silent {
    place: SourceLine,
    method: String,
}

/// The contracts found in the sources.
#[derive(Debug, Default)]
struct Contracts {
    bullets: Vec<Bullet>,
    silent: Vec<Silent>,
}

/// The result of the comparison.
#[derive(Debug)]
pub(crate) struct Review {
    contracts: usize,
    cases: usize,
    bare: usize,
    problems: Vec<String>,
}

/// Checks the checkout; an error if there is any problem.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let stores = ratchet_tck::cases::all().map(CaseFacts::of);
    let coordinators = ratchet_tck::coordinator::CASES.iter().map(CaseFacts::of);
    let identities = ratchet_tck::identity::CASES.iter().map(CaseFacts::of);
    let cases: Vec<CaseFacts> = stores.chain(coordinators).chain(identities).collect();
    let review = review(&sources(workspace)?, &cases);
    for problem in &review.problems {
        println!("{problem}");
    }
    println!("{} contracts, {} cases, {} bare", review.contracts, review.cases, review.bare);
    match review.problems.len() {
        0 => Ok(()),
        count => bail!("{count} problems between the contract and the cases"),
    }
}

impl CaseFacts {
    fn of<F>(case: &ratchet_tck::Case<F>) -> Self {
        Self {
            id: case.id(),
            proves: case.proves.iter().map(|id| (*id).to_owned()).collect(),
            shows: case.shows.len(),
        }
    }
}

fn sources(workspace: &Path) -> Result<Vec<Source>> {
    let folder = Path::new("ratchet-api/src/store");
    let mut sources = Vec::new();
    let entries = fs::read_dir(workspace.join(folder))
        .with_context(|| format!("cannot read the contract in {}", folder.display()))?;
    for entry in entries {
        let file = entry?.path();
        if file.extension().is_some_and(|e| e == "rs") {
            let path = file.strip_prefix(workspace).unwrap_or(&file).to_owned();
            sources.push(Source { path, text: fs::read_to_string(&file)? });
        }
    }
    for plug in PLUGS {
        sources.push(Source { path: plug.into(), text: fs::read_to_string(workspace.join(plug))? });
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// Compares the contract with the cases.
pub(crate) fn review(sources: &[Source], cases: &[CaseFacts]) -> Review {
    let mut contracts = Contracts::default();
    for source in sources {
        read(source, &mut contracts);
    }
    let mut problems = Vec::new();
    let mut known: BTreeMap<&str, &SourceLine> = BTreeMap::new();
    for bullet in &contracts.bullets {
        match &bullet.id {
            None => problems.push(format!("{}: a contract without an id", bullet.place)),
            Some(id) => match known.get(id.as_str()) {
                Some(first) => problems.push(format!("{}: `{id}` stands at {first} already", bullet.place)),
                None => drop(known.insert(id, &bullet.place)),
            },
        }
    }
    for silent in &contracts.silent {
        problems.push(format!("{}: `{}` has no # Contract", silent.place, silent.method));
    }
    let proved: BTreeSet<&str> = cases.iter().flat_map(|case| &case.proves).map(String::as_str).collect();
    for (id, place) in &known {
        if !proved.contains(id) {
            problems.push(format!("{place}: no case proves `{id}`"));
        }
    }
    problems.extend(cases.iter().flat_map(|case| case_problems(case, &known)));
    Review {
        contracts: contracts.bullets.len(),
        cases: cases.len(),
        bare: contracts.bullets.iter().filter(|b| b.id.is_none()).count() + contracts.silent.len(),
        problems,
    }
}

fn case_problems(case: &CaseFacts, known: &BTreeMap<&str, &SourceLine>) -> Vec<String> {
    let unknown = case.proves.iter().filter(|id| !known.contains_key(id.as_str()));
    let mut problems: Vec<String> =
        unknown.map(|id| format!("{}: proves `{id}`, which no contract says", case.id)).collect();
    if case.shows > MOST_NUMBERS {
        problems.push(format!("{}: names {} requirements, at most {MOST_NUMBERS}", case.id, case.shows));
    }
    if case.shows == 0 && case.proves.is_empty() {
        problems.push(format!("{}: names neither a contract nor a requirement", case.id));
    }
    problems
}

/// Reads one file line by line. The code is formatted, so traits and methods stand at known indentations.
fn read(source: &Source, contracts: &mut Contracts) {
    let mut reader = Reader::default();
    for (index, line) in source.text.lines().enumerate() {
        let place = SourceLine { path: source.path.clone(), line: index + 1 };
        reader.line(line, place, contracts);
    }
}

#[derive(Debug, Default)]
struct Reader {
    /// Whether inside a trait that stores implement.
    in_trait: bool,
    /// Whether inside a `# Contract` section.
    in_contract: bool,
    /// Whether the item being documented has a bullet.
    has_bullet: bool,
}

impl Reader {
    fn line(&mut self, line: &str, place: SourceLine, contracts: &mut Contracts) {
        let code = line.trim_start();
        if let Some(doc) = code.strip_prefix("///") {
            self.doc(doc, place, contracts);
        } else if let Some(name) = line.strip_prefix("pub trait ") {
            // Extension traits are written over the contract; no store implements them.
            self.in_trait = !identifier(name).ends_with("Ext");
            self.item_ends();
        } else if line == "}" {
            self.in_trait = false;
            self.item_ends();
        } else if let Some(name) = code.strip_prefix("async fn ") {
            if self.in_trait && !self.has_bullet {
                contracts.silent.push(Silent { place, method: identifier(name).to_owned() });
            }
            self.item_ends();
        } else if !code.starts_with("#[") {
            self.item_ends();
        }
    }

    fn doc(&mut self, doc: &str, place: SourceLine, contracts: &mut Contracts) {
        if let Some(heading) = doc.strip_prefix(" # ") {
            self.in_contract = heading.trim() == "Contract";
        } else if self.in_contract && doc.starts_with(" - ") {
            self.has_bullet = true;
            contracts.bullets.push(Bullet { place, id: contract_id(doc).map(str::to_owned) });
        }
    }

    fn item_ends(&mut self) {
        self.in_contract = false;
        self.has_bullet = false;
    }
}

/// The `id` of a bullet `` - `area.id`: text``.
fn contract_id(bullet: &str) -> Option<&str> {
    let (id, _) = bullet.strip_prefix(" - `")?.split_once("`: ")?;
    let (area, name) = id.split_once('.')?;
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_word(area) && is_word(name)).then_some(id)
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
/// Distributed locks.
#[async_trait]
pub trait LockStore: Send {
    /// Takes the lock.
    ///
    /// # Contract
    /// - `lock.exclusive`: while a lease runs no other owner gets the lock,
    ///   - whatever happens.
    /// - `lock.expires`: a lock runs out.
    #[must_use]
    async fn try_lock(&self) -> bool;
}
";

    fn case(id: &str, proves: &[&str], shows: usize) -> CaseFacts {
        CaseFacts { id: id.into(), proves: proves.iter().map(|id| (*id).to_owned()).collect(), shows }
    }

    fn problems(text: &str, cases: &[CaseFacts]) -> Vec<String> {
        review(&[Source { path: "lock.rs".into(), text: text.into() }], cases).problems
    }

    fn both() -> CaseFacts {
        case("lock::both", &["lock.exclusive", "lock.expires"], 1)
    }

    #[test]
    fn a_contract_with_a_case_for_each_bullet_is_whole() {
        let source = Source { path: "lock.rs".into(), text: LOCKS.into() };
        let review = review(&[source], &[both()]);
        assert_eq!((review.contracts, review.cases, review.bare), (2, 1, 0));
        assert_eq!(review.problems, Vec::<String>::new());
    }

    #[test]
    fn a_bullet_without_an_id_is_named_by_its_line() {
        for bare in ["- expires.", "- `lock.Expires`: x", "- `lock`: x", "- `lock.expires` x"] {
            let text = LOCKS.replace("- `lock.expires`: a lock runs out.", bare);
            let found = problems(&text, &[case("lock::one", &["lock.exclusive"], 1)]);
            assert_eq!(found, ["lock.rs:9: a contract without an id"], "{bare}");
        }
    }

    #[test]
    fn an_id_stands_once() {
        let text = LOCKS.replace("lock.expires", "lock.exclusive");
        let found = problems(&text, &[case("lock::one", &["lock.exclusive"], 1)]);
        assert_eq!(found, ["lock.rs:9: `lock.exclusive` stands at lock.rs:7 already"]);
    }

    #[test]
    fn a_promise_that_no_case_shows_is_named() {
        let found = problems(LOCKS, &[case("lock::one", &["lock.exclusive"], 1)]);
        assert_eq!(found, ["lock.rs:9: no case proves `lock.expires`"]);
    }

    #[test]
    fn a_case_names_only_what_the_contract_says() {
        let found = problems(LOCKS, &[both(), case("lock::odd", &["lock.magic"], 1)]);
        assert_eq!(found, ["lock::odd: proves `lock.magic`, which no contract says"]);
    }

    #[test]
    fn a_case_names_something_and_not_too_much() {
        let found = problems(LOCKS, &[both(), case("lock::idle", &[], 0), case("lock::all", &[], 4)]);
        let idle = "lock::idle: names neither a contract nor a requirement";
        assert_eq!(found, [idle, "lock::all: names 4 requirements, at most 3"]);
    }

    #[test]
    fn a_trait_method_without_a_contract_is_named() {
        let silent = "    /// Gives it up.\n    async fn unlock(&self) -> bool;\n}\n";
        let text = format!("{}{silent}", LOCKS.trim_end_matches("}\n"));
        let source = Source { path: "lock.rs".into(), text };
        let review = review(&[source], &[both()]);
        assert_eq!(review.problems, ["lock.rs:13: `unlock` has no # Contract"]);
        assert_eq!(review.bare, 1);
    }

    #[test]
    fn convenience_and_other_functions_need_no_contract() {
        let text =
            "pub trait LockStoreExt: LockStore {\n    async fn both(&self) {}\n}\nasync fn free() {}\n";
        assert_eq!(problems(text, &[]), Vec::<String>::new());
    }
}
