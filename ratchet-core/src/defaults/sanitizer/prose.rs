//! Secrets in sentences, which only a word before them reveals: `bearer x`, `the token is x1y2z3`.

use std::sync::LazyLock;

use super::pairs::KEY;
use super::rule::Rule;

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        Rule::after(r"(?i)(?-u:\b)bearer[ \t]+", r"[A-Za-z0-9._~+/=-]+").only_if(is_no_word_after_bearer),
        Rule::after(
            &format!(
                r#"(?xi) (?: (?: {key} | (?-u:\b) auth ) [\ \t]* [:(|~←] [\ \t]*
                   | (?: {key} | (?-u:\b) (?: auth | authorization | pass ) ) (?: [\ \t]+ (?: is | was ) )? [\ \t]+ )
                   \\*["'`]?"#,
                key = *KEY
            ),
            r"[A-Za-z0-9_+=.~!@\#$%^&*-]{6,}",
        )
        .only_if(is_no_word),
    ]
});

pub(super) fn strip_spoken(text: String) -> String {
    RULES.iter().fold(text, |text, rule| rule.apply(text))
}

/// The words that follow `bearer` in a sentence.
const AFTER_BEARER: [&str; 26] = [
    "a",
    "and",
    "auth",
    "authentication",
    "authorization",
    "challenge",
    "credential",
    "credentials",
    "error",
    "for",
    "format",
    "has",
    "header",
    "in",
    "is",
    "method",
    "must",
    "not",
    "of",
    "or",
    "prefix",
    "required",
    "scheme",
    "token",
    "tokens",
    "was",
];

fn is_no_word_after_bearer(text: &str) -> bool {
    let word = text.trim_end_matches('.').to_ascii_lowercase();
    !word.is_empty() && !word.starts_with("realm=") && !AFTER_BEARER.contains(&word.as_str())
}

/// Words with a digit that say what a secret is for.
const WITH_DIGIT: [&str; 8] = ["base64", "es256", "hs256", "oauth2", "rs256", "sha256", "sha384", "sha512"];

/// Whether a text mixes letters and digits as few words do.
fn is_no_word(text: &str) -> bool {
    let text = text.trim_end_matches(['.', '!']);
    text.len() >= 6
        && text.contains(|c: char| c.is_ascii_digit())
        && text.contains(|c: char| c.is_ascii_alphabetic())
        && !WITH_DIGIT.contains(&text.to_ascii_lowercase().as_str())
}
