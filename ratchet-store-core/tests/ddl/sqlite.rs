//! The tables in a file, as other programs see it.

use std::process::Command;

use crate::harness::list;
use crate::install::install;
use crate::place::{Product, TestDatabase};
use crate::text;

const SQLITE: &[Product] = &[Product::Sqlite];

list! {
    SQLITE =>
        the_schema_says_nothing_that_is_newer_than_sqlite_3_40,
        the_sqlite_of_the_machine_reads_the_file;
}

/// Features newer than SQLite 3.40, by the word that reveals them. A program that reads one of them in a view, an index
/// or a constraint cannot open the file at all.
const NEWER: &[(&str, &str)] = &[
    ("subsec", "3.42"),
    ("json_error_position(", "3.42"),
    ("octet_length(", "3.43"),
    ("timediff(", "3.43"),
    ("string_agg(", "3.44"),
    ("concat(", "3.44"),
    ("concat_ws(", "3.44"),
    ("jsonb", "3.45"),
    ("json_pretty(", "3.46"),
    ("unistr(", "3.50"),
    ("if(", "3.48"),
];

async fn the_schema_says_nothing_that_is_newer_than_sqlite_3_40(place: TestDatabase) {
    install(&place).await;
    let schema =
        place.connect().await.texts("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL", &[]).await;
    for text in schema {
        let words = text.to_lowercase();
        for (word, version) in NEWER {
            let before = |at: usize| words[..at].chars().next_back();
            let found = words
                .match_indices(word)
                .any(|(at, _)| !before(at).is_some_and(|c| c == '_' || c.is_alphanumeric()));
            assert!(!found, "`{word}` needs SQLite {version}: {text}");
        }
        assert!(
            !orders_an_aggregate(&words),
            "ORDER BY inside the call of a function needs SQLite 3.44: {text}"
        );
    }
}

/// Whether `ORDER BY` stands in parentheses that hold no `SELECT` or `OVER` of their own.
fn orders_an_aggregate(words: &str) -> bool {
    let mut parentheses = vec![false];
    for word in
        words.replace('(', " ( ").replace(')', " ) ").split_whitespace().collect::<Vec<_>>().windows(2)
    {
        match word[0] {
            "(" => parentheses.push(matches!(word[1], "select" | "with" | "partition" | "order")),
            ")" => drop(parentheses.pop()),
            "order" if word[1] == "by" && parentheses.len() > 1 && parentheses.last() == Some(&false) => {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// Reads the file with the `sqlite3` of the machine, where it is installed: CI has the one of Debian 12.
async fn the_sqlite_of_the_machine_reads_the_file(place: TestDatabase) {
    let Ok(version) = Command::new("sqlite3").arg("--version").output() else {
        eprintln!("`sqlite3` is not installed; the list of newer words is all that was checked");
        return;
    };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let migrations = text::of(place.product).migrations();
    place.migrator(&migrations).migrate(|_| {}).await.unwrap();
    let mut client = place.connect().await;
    for statement in [
        "INSERT INTO ratchet.scheduler_job (job_id, job_type, queue, payload, target, method, created_at) \
         VALUES (x'0190163d8694739baea5966c26f8ad91', 'SINGLE', 'default', '{}', 't', 'm', 0)",
        "INSERT INTO ratchet.scheduler_job_tag (job_id, tag, place) \
         SELECT job_id, 'z', 1 FROM ratchet.scheduler_job UNION ALL \
         SELECT job_id, 'a', 2 FROM ratchet.scheduler_job UNION ALL \
         SELECT job_id, 'm', 3 FROM ratchet.scheduler_job",
    ] {
        client.run(statement).await;
    }
    drop(client);
    let read = Command::new("sqlite3").arg(place.file()).arg("SELECT tags FROM vw_jobs").output().unwrap();
    assert_eq!(
        (String::from_utf8_lossy(&read.stderr).as_ref(), String::from_utf8_lossy(&read.stdout).trim()),
        ("", r#"["z","a","m"]"#),
        "SQLite {version}"
    );
}
