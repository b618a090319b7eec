//! Escapes for characters that a terminal interprets or hides: stored text must not control a terminal, reorder a line
//! or begin a new one.

use std::fmt::Write as _;

use ratchet_api::is_deceptive;

/// Whether a terminal would interpret or hide this character instead of showing it. Line feeds and tabs are layout.
fn steers(c: char) -> bool {
    is_deceptive(c) && !matches!(c, '\n' | '\t')
}

/// Escapes text for a terminal. Line feeds stay.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if steers(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Escapes stored text inside one of our lines, so that it cannot fake another one.
pub(crate) fn one_line(stored: &str) -> String {
    text(stored).replace('\n', "\\n")
}

/// Escapes a JSON document for a terminal without changing its value.
pub(super) fn json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        match c {
            // In valid JSON a carriage return stands between tokens, never in a string.
            '\r' => out.push(' '),
            // In JSON any other such character stands in a string, where an escape means the same.
            c if steers(c) => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(out, "\\u{unit:04x}");
            }),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEERING: [char; 12] = [
        '\u{1b}',
        '\u{7f}',
        '\u{9b}',
        '\u{ad}',
        '\u{61c}',
        '\u{200f}',
        '\u{2028}',
        '\u{202e}',
        '\u{2066}',
        '\u{feff}',
        '\u{fff9}',
        '\u{e0041}',
    ];

    #[test]
    fn text_keeps_its_lines_and_shows_what_would_steer() {
        assert_eq!(text("a\u{1b}[2Jb\r\n\tc\u{202e}é😀"), "a\\u{1b}[2Jb\\r\n\tc\\u{202e}é😀");
        for c in STEERING {
            assert_eq!(text(&format!("a{c}b")), format!("a\\u{{{:x}}}b", u32::from(c)));
        }
        assert_eq!(one_line("a\nError: b"), "a\\nError: b");
    }

    #[test]
    fn an_escaped_document_has_the_same_values() {
        for c in STEERING {
            let value = serde_json::json!({ format!("k{c}"): [format!("a{c}é"), 1.5] });
            let document = serde_json::to_string_pretty(&value).unwrap();
            let shown = json(&document);
            assert!(!shown.contains(c), "{c:?}: {shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
        assert_eq!(json("{\r\n\t\"a\": \"\\r\"}"), "{ \n\t\"a\": \"\\r\"}");
    }
}
