//! Texts that no file of the project may contain.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::Violations;

/// Files that tools write and that naturally contain addresses.
const WRITTEN_BY_TOOLS: [&str; 2] = ["Cargo.lock", "package-lock.json"];

/// Modules that may build SQL text from checked names: one in each SQL store, reviewed with care, and the tests of
/// plans, which put `EXPLAIN` before the statements of their own crate.
const AUDITED: [&str; 5] = [
    "src/params.rs",
    "tests/plans.rs",
    "ratchet-store-postgres/tests/common/user.rs",
    "ratchet-bench/src/store/sqlite/explain.rs",
    "ratchet-suite/tests/damage/sql.rs",
];

/// A file of the project.
#[derive(Debug)]
pub(super) struct TextFile {
    /// The path relative to the workspace.
    pub(super) name: String,
    pub(super) text: String,
}

/// The text files that git tracks or would track.
pub(super) fn files(workspace: &Path) -> Result<Vec<TextFile>> {
    let out = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace)
        .output()
        .context("cannot run git")?;
    if !out.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let names = String::from_utf8_lossy(&out.stdout).into_owned();
    let names = names.split('\0').filter(|name| !name.is_empty());
    let wanted = names.filter(|name| !WRITTEN_BY_TOOLS.iter().any(|tool| name.ends_with(tool)));
    Ok(wanted
        .filter_map(|name| {
            // A file that was removed but not yet committed is still listed.
            let bytes = fs::read(workspace.join(name)).ok()?;
            let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
            Some(TextFile { name: name.to_owned(), text })
        })
        .collect())
}

/// Finds lines that contain any of `needles`.
pub(super) fn holding(file: &TextFile, needles: &BTreeSet<String>) -> Violations {
    let hit = |line: &str| needles.iter().any(|needle| line.contains(needle.as_str()));
    let lines = file.text.lines().enumerate().filter(|(_, line)| hit(line));
    lines.map(|(n, line)| format!("{}:{}: {}", file.name, n + 1, line.trim())).collect()
}

/// The hosts that this machine's package clients talk to.
pub(super) fn registry_hosts() -> BTreeSet<String> {
    let mut texts = Vec::new();
    let mut files = vec![PathBuf::from("/etc/apt/sources.list"), PathBuf::from("/etc/pip.conf")];
    let folder = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(folder.map(|entry| entry.path()));
    texts.extend(files.iter().filter_map(|file| fs::read_to_string(file).ok()));
    texts.extend(["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"].iter().filter_map(|name| std::env::var(name).ok()));
    for command in [["pip", "config", "list"].as_slice(), &["npm", "config", "get", "registry"]] {
        let out = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
        texts.extend(out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()));
    }
    texts.iter().flat_map(|text| hosts_in(text)).collect()
}

fn hosts_in(text: &str) -> Vec<String> {
    // This machine itself and GitHub may be named for good reasons.
    let named_anyway = |host: &str| {
        host.contains("github") || host == "localhost" || host.parse::<std::net::IpAddr>().is_ok()
    };
    ["http://", "https://"]
        .iter()
        .flat_map(|scheme| text.split(scheme).skip(1))
        .map(|rest| {
            rest.split(|c: char| c == '/' || c == '\'' || c.is_whitespace()).next().unwrap_or_default()
        })
        .map(|place| place.rsplit('@').next().unwrap_or_default())
        .map(|place| place.split(':').next().unwrap_or_default().to_owned())
        .filter(|host| host.contains('.') && !named_anyway(host))
        .collect()
}

/// Prefixes of paths that exist on this machine only.
pub(super) fn machine_paths(workspace: &Path) -> BTreeSet<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    paths_of(workspace, home.as_deref())
}

fn paths_of(workspace: &Path, home: Option<&Path>) -> BTreeSet<String> {
    // Folders that every machine has say nothing about this one.
    const EVERYWHERE: [&str; 7] = ["/", "/tmp", "/var/tmp", "/home", "/usr/src", "/srv", "/opt"];
    let own = [Some(workspace), workspace.parent(), home];
    own.into_iter()
        .flatten()
        .filter(|path| path.is_absolute() && !EVERYWHERE.iter().any(|common| Path::new(common) == *path))
        .map(|path| format!("{}/", path.display()))
        .collect()
}

/// Finds SQL text built by formatting macros, or marked as safe.
pub(super) fn built_sql(file: &TextFile) -> Violations {
    if !file.name.ends_with(".rs") || AUDITED.iter().any(|path| file.name.ends_with(path)) {
        return Vec::new();
    }
    const MACROS: [&str; 4] = ["format!", "format_args!", "write!", "writeln!"];
    const VOUCHING: &str = concat!("AssertSql", "Safe(");
    let mut found = Vec::new();
    let mut report = |at: usize| {
        let line = file.text[..at].lines().count().max(1);
        let text = file.text[at..].lines().next().unwrap_or_default();
        found.push((at, format!("{}:{line}: {}", file.name, text.trim())));
    };
    for (at, _) in file.text.match_indices(VOUCHING) {
        report(at);
    }
    for name in MACROS {
        for (at, _) in file.text.match_indices(name) {
            // `write!` also ends `my_write!`, which is another macro.
            let is_end = file.text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let Some(call) = file.text[at + name.len()..].strip_prefix('(') else { continue };
            if !is_end && literals(call).iter().any(|text| is_sql(text)) {
                report(at);
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, text)| text).collect()
}

/// Whether a text is part of an SQL statement rather than a message about one.
fn is_sql(text: &str) -> bool {
    const KEYWORDS: [&str; 4] = ["SELECT", "UPDATE", "INSERT", "DELETE"];
    const STARTS: [(&str, &str); 4] =
        [("select ", " from "), ("update ", " set "), ("insert into ", ""), ("delete from ", "")];
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let lower = text.trim_start().to_lowercase();
    words.any(|word| KEYWORDS.contains(&word))
        || text.contains("ORDER BY")
        || STARTS.iter().any(|(start, then)| lower.starts_with(start) && lower.contains(then))
}

/// The string literals up to the parenthesis that closes a call.
fn literals(code: &str) -> Vec<&str> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut depth = 1;
    let mut at = 0;
    while at < bytes.len() && depth > 0 {
        match bytes[at] {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b'/' if code[at..].starts_with("//") => {
                at += code[at..].find('\n').unwrap_or(code.len() - at) - 1;
            }
            // A character literal may contain a quote or a parenthesis; a lifetime contains neither.
            b'\'' if bytes.get(at + 2) == Some(&b'\'') => at += 2,
            b'\'' if bytes.get(at + 1) == Some(&b'\\') && bytes.get(at + 3) == Some(&b'\'') => at += 3,
            b'"' => {
                let hashes = code[..at].bytes().rev().take_while(|b| *b == b'#').count();
                let raw = code[..at - hashes].ends_with('r');
                let length = literal_length(&code[at + 1..], if raw { Some(hashes) } else { None });
                found.push(&code[at + 1..at + 1 + length]);
                at += length + 1;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The length of a literal's content; `hashes` is given for a raw one.
fn literal_length(content: &str, hashes: Option<usize>) -> usize {
    match hashes {
        Some(n) => content.find(&format!("\"{}", "#".repeat(n))).unwrap_or(content.len()),
        None => {
            let mut escaped = false;
            let is_end = |byte: u8| {
                let end = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                end
            };
            content.bytes().position(is_end).unwrap_or(content.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> TextFile {
        // Split, so that this file does not break the rule that it tests.
        let text =
            text.replace("FORMAT", "format!").replace("WRITE", "write!").replace("VOUCH", "AssertSqlSafe");
        TextFile { name: name.to_owned(), text }
    }

    fn sql(text: &str) -> usize {
        built_sql(&file("ratchet-store-x/src/a.rs", text)).len()
    }

    #[test]
    fn sql_in_a_formatting_macro_is_found() {
        assert_eq!(sql(r#"FORMAT("SELECT * FROM t WHERE a = {x}")"#), 1);
        assert_eq!(sql(r#"FORMAT("{head} ORDER BY {column}")"#), 1);
        assert_eq!(sql(r#"WRITE(out, "UPDATE {} SET a = 1", table)"#), 1);
        assert_eq!(sql(r#"FORMAT("delete from {table}")"#), 1);
        assert_eq!(sql("FORMAT(\n    r#\"a \" INSERT INTO {t}\"#,\n)"), 1);
        assert_eq!(sql(r#"FORMAT("{}", f(')', "DELETE"))"#), 1);
        assert_eq!(sql("sqlx::query(VOUCH(text))"), 1);
    }

    #[test]
    fn messages_and_constants_are_left_alone() {
        assert_eq!(sql(r#"FORMAT("cannot insert the job {id}")"#), 0);
        assert_eq!(sql(r#"FORMAT("the update of {id} was lost")"#), 0);
        assert_eq!(sql(r#"let a = "SELECT 1"; FORMAT("{a}")"#), 0);
        assert_eq!(sql(r#"FORMAT("{a}"); let b = "SELECT 1";"#), 0);
        assert_eq!(sql(r#"FORMAT("{}", '"'); let b = "SELECT 1";"#), 0);
        assert_eq!(sql(r#"my_FORMAT("SELECT {x}")"#), 0);
        assert_eq!(sql(r#"FORMAT("DELETED {x}")"#), 0);
    }

    #[test]
    fn only_the_audited_module_may_build_sql() {
        let text = r#"FORMAT("SELECT {x}")"#;
        assert_eq!(built_sql(&file("ratchet-store-core/src/params.rs", text)).len(), 0);
        assert_eq!(built_sql(&file("docs/a.md", text)).len(), 0);
        let found = built_sql(&file("ratchet-store-core/src/row.rs", &format!("\n\n  {text}")));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("ratchet-store-core/src/row.rs:3: format"), "{}", found[0]);
    }

    #[test]
    fn hosts_are_read_from_any_client_configuration() {
        let text = "deb http://mirror.test/debian sid main\n\
            URIs: https://user:pw@private.test:8443/x\n\
            global.index-url='https://index.test/simple'\n\
            https://github.com/x http://localhost:3141/y http://127.0.0.1/z";
        let hosts: BTreeSet<String> = hosts_in(text).into_iter().collect();
        let expected = ["index.test", "mirror.test", "private.test"];
        assert_eq!(hosts, expected.map(str::to_owned).into());
    }

    #[test]
    fn a_line_with_an_address_is_found() {
        let needles = BTreeSet::from(["mirror.test".to_owned()]);
        let found = holding(&file("a.md", "one\ntwo http://mirror.test/x\n"), &needles);
        assert_eq!(found, ["a.md:2: two http://mirror.test/x"]);
        assert!(holding(&file("a.md", "mirror"), &needles).is_empty());
    }

    #[test]
    fn paths_that_every_machine_has_are_fine() {
        let paths = paths_of(Path::new("/tmp/clone"), Some(Path::new("/home/me")));
        assert_eq!(paths, ["/home/me/", "/tmp/clone/"].map(str::to_owned).into());
        let paths = paths_of(Path::new("/build/main"), None);
        assert_eq!(paths, ["/build/", "/build/main/"].map(str::to_owned).into());
    }
}
