//! The words of comments: a sentence begins with its subject.

use super::{Violations, text::TextFile};

/// Openings after which a reader has to decode the sentence. `docs/glossary.md` has the vocabulary.
const BANNED: [&str; 6] = ["Likewise", "What", "Who", "Whoever", "Whatever", "Whose"];

/// Comments of Rust code that begin with such a word.
pub(super) fn banned_openings(file: &TextFile) -> Violations {
    if !file.name.ends_with(".rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut is_continued = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        let comment = comment(line);
        let text = comment.unwrap_or_default();
        let word = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        if !is_continued && BANNED.contains(&word) {
            found.push(format!("{}:{number}: {text}", file.name));
        }
        // A blank line or the end of a sentence ends the one before.
        is_continued = comment.is_some() && !text.is_empty() && !text.ends_with(['.', ':', '`']);
    }
    found
}

/// The text of a line that is nothing but a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_begins_with_a_riddle_is_found_and_one_that_goes_on_with_it_is_not() {
        let text = "/// What can be replaced.\nstruct A;\n// It is known\n// What it does is clear.\n\
                    /// Whether it is.\n//! Likewise.\nlet a = 1; // What else\n";
        let file = TextFile { name: "a.rs".to_owned(), text: text.to_owned() };
        assert_eq!(banned_openings(&file), ["a.rs:1: What can be replaced.", "a.rs:6: Likewise."]);
    }
}
