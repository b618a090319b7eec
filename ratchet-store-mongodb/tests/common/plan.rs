//! The server's plan for a command: the indexes that it scans, and how much it reads.

use std::fmt;

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};

/// Commands that the server can explain.
const EXPLAINED: [&str; 5] = ["aggregate", "find", "update", "findAndModify", "delete"];
/// The fields of a command that belong to its session.
const OF_THE_SESSION: [&str; 9] = [
    "lsid",
    "txnNumber",
    "startTransaction",
    "autocommit",
    "$clusterTime",
    "$db",
    "writeConcern",
    "readConcern",
    "$readPreference",
];

/// How one statement finds its documents.
pub(crate) struct Plan {
    command: Document,
    parts: Vec<Part>,
}

/// One query of the statement: a pipeline can have several.
struct Part {
    collection: String,
    keys: u64,
    documents: u64,
    scans: Vec<Scan>,
    sorted: u64,
}

/// A scan of an index, or of all documents.
pub(crate) struct Scan {
    pub(crate) index: String,
    pub(crate) keys: u64,
}

/// Explains each statement of these commands as it would run now.
pub(crate) async fn explain(database: &Database, commands: &[Document]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for command in commands.iter().filter(|command| is_explained(command)) {
        for command in statements(command) {
            let explain = doc! { "explain": command.clone(), "verbosity": "executionStats" };
            let told = database.run_command(explain).await.expect("the server explains");
            let mut parts = Vec::new();
            collect(&told, &mut parts);
            plans.push(Plan { command, parts });
        }
    }
    plans
}

/// Whether the command runs on a collection: `$currentOp` does not.
fn is_explained(command: &Document) -> bool {
    let goes_to = command.iter().next();
    goes_to.is_some_and(|(name, to)| EXPLAINED.contains(&name.as_str()) && to.as_str().is_some())
}

/// The command without its session; one with many updates as many commands, because only one update can be explained.
fn statements(command: &Document) -> Vec<Document> {
    let mut plain = command.clone();
    for field in OF_THE_SESSION {
        plain.remove(field);
    }
    for list in ["updates", "deletes"] {
        if let Ok(each) = command.get_array(list) {
            let alone = |statement: &Bson| {
                let mut plain = plain.clone();
                plain.insert(list, vec![statement.clone()]);
                plain
            };
            return each.iter().map(alone).collect();
        }
    }
    vec![plain]
}

/// Collects every query of a reply: a planner with its statistics beside it.
fn collect(told: &Document, parts: &mut Vec<Part>) {
    if let (Ok(planner), Ok(stats)) = (told.get_document("queryPlanner"), told.get_document("executionStats"))
    {
        let namespace = planner.get_str("namespace").unwrap_or_default();
        let mut part = Part {
            collection: namespace.split_once('.').map_or(namespace, |(_, name)| name).to_owned(),
            keys: number(stats, "totalKeysExamined"),
            documents: number(stats, "totalDocsExamined"),
            scans: Vec::new(),
            sorted: 0,
        };
        if let Ok(stage) = stats.get_document("executionStages") {
            part.walk(stage);
        }
        parts.push(part);
    }
    for (_, value) in told {
        match value {
            Bson::Document(below) => collect(below, parts),
            Bson::Array(below) => {
                below.iter().filter_map(Bson::as_document).for_each(|below| collect(below, parts));
            }
            _ => {}
        }
    }
}

impl Part {
    fn walk(&mut self, stage: &Document) {
        let index = stage.get_str("indexName").unwrap_or("_id_").to_owned();
        match stage.get_str("stage").unwrap_or_default() {
            "COLLSCAN" => {
                let keys = number(stage, "docsExamined");
                self.scans.push(Scan { index: "no index".to_owned(), keys });
            }
            "IXSCAN" | "COUNT_SCAN" | "DISTINCT_SCAN" | "IDHACK" => {
                self.scans.push(Scan { index, keys: number(stage, "keysExamined") });
            }
            "SORT" => {
                let below = stage.get_document("inputStage").map(|below| number(below, "nReturned"));
                self.sorted = self.sorted.max(below.unwrap_or_default());
            }
            _ => {}
        }
        if let Ok(below) = stage.get_document("inputStage") {
            self.walk(below);
        }
        for below in stage.get_array("inputStages").into_iter().flatten().filter_map(Bson::as_document) {
            self.walk(below);
        }
    }
}

fn number(document: &Document, field: &str) -> u64 {
    let value = document.get(field);
    let whole = value.and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from)));
    whole.and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
}

impl Plan {
    /// The keys or documents that all of it reads, whichever is more.
    pub(crate) fn read(&self) -> u64 {
        let (keys, documents): (Vec<_>, Vec<_>) =
            self.parts.iter().map(|part| (part.keys, part.documents)).unzip();
        keys.iter().sum::<u64>().max(documents.iter().sum())
    }

    /// The scans of this collection.
    pub(crate) fn scans<'p>(&'p self, collection: &'p str) -> impl Iterator<Item = &'p Scan> {
        self.parts.iter().filter(move |part| part.collection == collection).flat_map(|part| &part.scans)
    }

    /// The most documents that a sort in memory receives.
    pub(crate) fn sorted_most(&self) -> u64 {
        self.parts.iter().map(|part| part.sorted).max().unwrap_or_default()
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} keys)", self.index, self.keys)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Part { collection, keys, documents, scans, sorted } in &self.parts {
            write!(f, "\n{collection}: {keys} keys, {documents} documents, {sorted} sorted, by")?;
            scans.iter().try_for_each(|scan| write!(f, " {scan}"))?;
        }
        write!(f, "\nof {}", self.command)
    }
}
