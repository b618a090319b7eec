//! Finds unit tests marked with the requirements that they show: a comment `shows: S161 S162` above their head.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

const MARK: &str = "// shows:";

/// A marked test and its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    /// `area::name` for a case of the suite, else `crate::module::name`.
    pub(crate) id: String,
    pub(crate) numbers: Vec<u16>,
}

/// Every marked test of the workspace.
pub(crate) fn scan(workspace: &Path) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for file in rust_files(workspace)? {
        let text = fs::read_to_string(workspace.join(&file))?;
        tests.extend(read(&file, &text)?);
    }
    Ok(tests)
}

/// The sources of all crates, by path.
fn rust_files(workspace: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(workspace)? {
        let krate = entry?.path();
        if !krate.join("Cargo.toml").is_file() {
            continue;
        }
        for folder in ["src", "tests"] {
            collect(&krate.join(folder), &mut files)?;
        }
    }
    files.sort();
    Ok(files.iter().map(|file| file.strip_prefix(workspace).unwrap_or(file).to_owned()).collect())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// A mark whose test has not been reached yet.
struct Mark {
    line: usize,
    numbers: Vec<u16>,
}

fn read(file: &Path, text: &str) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    let mut module = "";
    let mut mark: Option<Mark> = None;
    let astray = |mark: &Mark| format!("{}:{}: `{MARK}` stands above no test", file.display(), mark.line);
    for (line, text) in (1..).zip(text.lines()) {
        let code = text.trim_start();
        if let Some(name) = inline_module(text) {
            module = name;
        } else if text == "}" {
            module = "";
        }
        if let Some(list) = code.strip_prefix(MARK) {
            let numbers = numbers(list).with_context(|| format!("{}:{line}", file.display()))?;
            mark.get_or_insert(Mark { line, numbers: Vec::new() }).numbers.extend(numbers);
        } else if let Some(name) = function(code) {
            let id = || test_id(file, module, name);
            tests.extend(mark.take().map(|mark| Test { id: id(), numbers: mark.numbers }));
        } else if let Some(mark) = &mark
            && !code.starts_with("#[")
            && !code.starts_with("//")
        {
            bail!(astray(mark));
        }
    }
    match mark {
        Some(mark) => bail!(astray(&mark)),
        None => Ok(tests),
    }
}

fn inline_module(line: &str) -> Option<&str> {
    line.strip_prefix("mod ")?.strip_suffix(" {")
}

/// The name of the function that this line declares.
fn function(code: &str) -> Option<&str> {
    let code = code.strip_prefix("pub ").unwrap_or(code);
    let code = code.strip_prefix("async ").unwrap_or(code);
    code.strip_prefix("fn ")?.split(['(', '<']).next()
}

fn numbers(list: &str) -> Result<Vec<u16>> {
    let number = |word: &str| word.strip_prefix('S').and_then(|digits| digits.parse().ok());
    let number = |word: &str| number(word).with_context(|| format!("`{word}` is not like S12"));
    list.split_whitespace().map(number).collect()
}

/// The id of a test: the crate, and the path that the crate's test program prints.
fn test_id(file: &Path, module: &str, name: &str) -> String {
    let file = file.with_extension("");
    let mut parts = file.iter().filter_map(|part| part.to_str());
    let krate = parts.next();
    // The next folder is `src` or `tests`; the root of a crate has no module name.
    let modules = parts.skip(1).filter(|part| !["lib", "main", "mod"].contains(part));
    let path: Vec<&str> = krate.into_iter().chain(modules).chain([module, name]).collect();
    path.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<Test> {
        read(Path::new(file), text).unwrap()
    }

    fn test(id: &str, numbers: &[u16]) -> Test {
        Test { id: id.into(), numbers: numbers.to_vec() }
    }

    #[test]
    fn a_mark_belongs_to_the_test_below_its_attributes() {
        let text = format!(
            "fn free() {{}}\nmod tests {{\n    {MARK} S24 S25\n    // Why so.\n    #[test]\n    \
             #[should_panic]\n    fn exactly_the_drawn_moves() {{}}\n}}\n"
        );
        let expected = test("ratchet-api::status::tests::exactly_the_drawn_moves", &[24, 25]);
        assert_eq!(found("ratchet-api/src/status.rs", &text), [expected]);
    }

    #[test]
    fn paths_are_those_of_the_test_program() {
        let text = format!("{MARK} S1\n#[tokio::test]\nasync fn holds() {{}}\n");
        for (file, id) in [
            ("ratchet-api/src/uuid7/tests.rs", "ratchet-api::uuid7::tests::holds"),
            ("ratchet-api/src/options/mod.rs", "ratchet-api::options::holds"),
            ("ratchet-core/src/lib.rs", "ratchet-core::holds"),
            ("ratchet-core/tests/crash.rs", "ratchet-core::crash::holds"),
        ] {
            assert_eq!(found(file, &text), [test(id, &[1])]);
        }
    }

    #[test]
    fn a_mark_above_nothing_or_with_nonsense_is_an_error() {
        let error = |text: String| format!("{:#}", read(Path::new("a/src/b.rs"), &text).unwrap_err());
        let astray = "stands above no test";
        assert_eq!(error(format!("{MARK} S1\n")), format!("a/src/b.rs:1: `{MARK}` {astray}"));
        let code_between = format!("\n{MARK} S1\nlet x = 1;\n");
        assert_eq!(error(code_between), format!("a/src/b.rs:2: `{MARK}` {astray}"));
        assert_eq!(error(format!("{MARK} 12\nfn a() {{}}")), "a/src/b.rs:1: `12` is not like S12");
    }
}
