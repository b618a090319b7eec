//! Files quoted by pages. The line `<!-- source: path/of/the/file -->` before a fenced block names the file.
//!
//! A program of the guide exists once, as a program that a test runs; its page shows that exact text.

use std::{fs, path::Path};

use anyhow::Result;

use super::{
    Violations,
    text::{self, TextFile},
};

const MARK: (&str, &str) = ("<!-- source: ", " -->");
const FENCE: &str = "```";
/// The folder in which every Rust block has a source.
const GUIDE: &str = "docs/guide/";
/// The programs that its pages quote.
const PROGRAMS: &str = "examples/guide/src/bin/";

/// Finds quotes that differ from their files, blocks of the guide without a source, and programs that no page quotes.
pub(super) fn stale(files: &[TextFile]) -> Violations {
    let mut found = Vec::new();
    let mut quoted = Vec::new();
    for page in files.iter().filter(|file| file.name.ends_with(".md")) {
        let renewed = renew(page, files);
        found.extend(renewed.faults.iter().map(|fault| format!("{}: {fault}", page.name)));
        if renewed.is_other_than(page) {
            found.push(format!("{}: quotes another text than its sources have", page.name));
        }
        quoted.extend(renewed.sources);
    }
    let programs = files.iter().filter(|file| file.name.starts_with(PROGRAMS));
    let unseen = programs.filter(|file| !quoted.contains(&file.name));
    found.extend(unseen.map(|file| format!("{}: no page quotes it", file.name)));
    found
}

/// Updates every quote from its file.
pub(super) fn write(workspace: &Path) -> Result<()> {
    let files = text::files(workspace)?;
    for page in files.iter().filter(|file| file.name.ends_with(".md")) {
        let renewed = renew(page, &files);
        if renewed.is_other_than(page) {
            fs::write(workspace.join(&page.name), renewed.text)?;
        }
    }
    Ok(())
}

/// An updated page.
#[derive(Default)]
struct Renewed {
    text: String,
    /// The files that it quotes.
    sources: Vec<String>,
    /// Problems that cannot be fixed automatically.
    faults: Violations,
}

impl Renewed {
    fn is_other_than(&self, page: &TextFile) -> bool {
        self.faults.is_empty() && !self.sources.is_empty() && self.text != page.text
    }
}

fn renew(page: &TextFile, files: &[TextFile]) -> Renewed {
    let mut renewed = Renewed::default();
    let mut lines = page.text.lines();
    let mut source = None;
    while let Some(line) = lines.next() {
        renewed.text += line;
        renewed.text.push('\n');
        let named = line.strip_prefix(MARK.0).and_then(|rest| rest.strip_suffix(MARK.1));
        if let Some(name) = named {
            source = Some(name);
            continue;
        }
        let named = source.take();
        let Some(language) = line.strip_prefix(FENCE) else {
            renewed.faults.extend(named.map(|name| format!("no fenced block follows the source {name}")));
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != FENCE).collect();
        let body = match named {
            Some(name) => match files.iter().find(|file| file.name == name) {
                Some(file) => file.text.lines().collect(),
                None => {
                    renewed.faults.push(format!("there is no file {name}"));
                    block
                }
            },
            None => {
                if page.name.starts_with(GUIDE) && language.starts_with("rust") {
                    renewed.faults.push(format!("a block of Rust without a source: {}", block.join(" ")));
                }
                block
            }
        };
        renewed.sources.extend(named.map(str::to_owned));
        for line in body.into_iter().chain([FENCE]) {
            renewed.text += line;
            renewed.text.push('\n');
        }
    }
    renewed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> TextFile {
        TextFile { name: name.to_owned(), text: text.to_owned() }
    }

    fn page(source: &str, block: &str) -> TextFile {
        file("docs/guide/a.md", &format!("# A\n\n<!-- source: {source} -->\n```rust\n{block}```\n\nend\n"))
    }

    fn program() -> TextFile {
        file("examples/guide/src/bin/a.rs", "fn main() {\n}\n")
    }

    #[test]
    fn a_quote_that_differs_is_told_and_can_be_renewed() {
        let right = page("examples/guide/src/bin/a.rs", "fn main() {\n}\n");
        let wrong = page("examples/guide/src/bin/a.rs", "fn other() {}\n");
        let files = [program(), wrong];
        assert_eq!(stale(&files), ["docs/guide/a.md: quotes another text than its sources have"]);
        assert_eq!(renew(&files[1], &files).text, right.text);
        assert_eq!(stale(&[program(), right]), [""; 0]);
    }

    #[test]
    fn what_cannot_be_renewed_is_told() {
        assert_eq!(stale(&[page("x.rs", "")]), ["docs/guide/a.md: there is no file x.rs"]);
        let lost = file("docs/b.md", "<!-- source: x.rs -->\n\n```rust\n```\n");
        assert_eq!(stale(&[lost]), ["docs/b.md: no fenced block follows the source x.rs"]);
        assert_eq!(stale(&[program()]), ["examples/guide/src/bin/a.rs: no page quotes it"]);
    }

    #[test]
    fn a_page_of_the_guide_shows_no_rust_that_nothing_compiles() {
        let text = "```rust\nfn a() {}\n```\n";
        let found = stale(&[file("docs/guide/a.md", text)]);
        assert_eq!(found, ["docs/guide/a.md: a block of Rust without a source: fn a() {}"]);
        assert_eq!(stale(&[file("docs/other.md", text), file("docs/guide/a.md", "```toml\n```\n")]), [""; 0]);
    }
}
