//! Types that are a secret by their name, as `{:?}` prints them: `Password("x")`, `Secret { value: "x" }`.

use std::sync::LazyLock;

use regex::Regex;

use super::REDACTED;
use super::pairs::{KEY, QUOTED};
use super::rule::{Rule, regex, replace_all};

/// A text in quotes, or one whose end is missing.
static TEXT: LazyLock<Regex> = LazyLock::new(|| regex(&format!(r#"(?s){QUOTED}|"[^\n]*"#)));

static FIELDS: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!(r"(?xi) {} (?:string|box|vec|bytes)? [\ \t]* \{{ [^{{}}]* \}}?", *KEY)));

static ARGUMENTS: LazyLock<Rule> = LazyLock::new(|| {
    let value = r#"\\*"(?:[^"\\]|\\[^"])*\\?"?|'[^'\n]*'?"#;
    Rule::after(
        &format!(r"(?xi) {} (?:string|box|vec|bytes)? \( \s*", *KEY),
        &format!(r"(?:{value})(?:\s*,\s*(?:{value}))*"),
    )
});

pub(super) fn strip_secret_types(text: String) -> String {
    let text = replace_all(&FIELDS, text, |found, out| {
        let (name, fields) = found.split_at(found.find('{').unwrap_or(found.len()));
        out.push_str(name);
        out.push_str(&TEXT.replace_all(fields, format!("\"{REDACTED}\"")));
    });
    ARGUMENTS.apply(text)
}
