//! Keeps secrets and personal data out of error texts.
//!
//! `rules` defines what a secret looks like; this module handles the rest: the class, the causes, the hooks, the
//! length.

mod card;
mod commands;
mod debug;
mod pairs;
mod prose;
mod rule;
mod rules;
mod url;

use std::fmt;
use std::sync::Arc;

use ratchet_api::options::SecurityOptions;
use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::{JobFailure, Sanitized, is_deceptive};

/// The replacement for a secret.
const REDACTED: &str = "[REDACTED]";
const CUT: &str = "…[truncated]";
/// The most bytes of a text that are read, so that an absurdly long one costs milliseconds.
const MAX_INPUT: usize = 64 * 1024;
const MAX_CLASS: usize = 255;
/// The most passes over a text: removing one secret, or the end of the text, can uncover another. Two are usual.
const MAX_PASSES: usize = 6;

type Hook = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The default sanitizer: the short name of the error's class, its message and its causes, without credentials.
///
/// Removed are credentials in URLs, connection strings, headers, key-value pairs, command lines, sentences and types
/// that are called after them (`Password("x")`); private keys; JSON web tokens and the tokens of well-known vendors; row
/// values in messages of databases; card numbers; and e-mail addresses, unless [`SecurityOptions::redact_emails`] is
/// off. The rest still says where and what, such as host and database:
///
/// ```
/// use ratchet_core::{JobFailure, Sanitized};
/// use ratchet_core::defaults::DefaultErrorSanitizer;
///
/// let failure = JobFailure::new("SqlError", "no route to jdbc:mysql://admin:s3cret@db.internal:3306/prod");
/// let text = Sanitized::new(&DefaultErrorSanitizer::default(), &failure);
/// assert_eq!(text.as_str(), "SqlError: no route to jdbc:mysql://[REDACTED]@db.internal:3306/prod");
/// ```
///
/// A hook removes secrets that only the application knows. It sees the sanitized text, and its result is sanitized
/// again, so it can hide more but not less:
///
/// ```
/// # use ratchet_core::{JobFailure, Sanitized};
/// # use ratchet_core::defaults::DefaultErrorSanitizer;
/// let sanitizer = DefaultErrorSanitizer::default().then(|text| text.replace("Project Falcon", "a project"));
/// let failure = JobFailure::new("Denied", "Project Falcon: password=hunter2");
/// assert_eq!(Sanitized::new(&sanitizer, &failure).as_str(), "Denied: a project: password=[REDACTED]");
/// ```
#[derive(Clone)]
pub struct DefaultErrorSanitizer {
    redact_emails: bool,
    hooks: Vec<Hook>,
}

impl DefaultErrorSanitizer {
    /// A sanitizer with these options.
    pub fn new(options: &SecurityOptions) -> Self {
        Self { redact_emails: options.redact_emails, hooks: Vec::new() }
    }

    /// Adds a hook that runs after everything else. It should be idempotent.
    #[must_use]
    pub fn then(mut self, hook: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// The class followed by the cleaned text, which a previous call may have put there already.
    fn labelled(&self, class: &str, text: &str) -> String {
        if text == class {
            return class.to_owned();
        }
        let text = text.strip_prefix(class).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text);
        match self.clean(text, Sanitized::MAX_LEN - class.len() - 2) {
            text if text.is_empty() => class.to_owned(),
            text if class.is_empty() => text,
            text => format!("{class}: {text}"),
        }
    }

    fn clean(&self, text: &str, max_len: usize) -> String {
        let (mut text, mut cut) = visible(text);
        for _ in 0..MAX_PASSES {
            let mut next = rules::redact(&text, self.redact_emails);
            if cut || next.len() > max_len {
                cut = true;
                next.truncate(next.floor_char_boundary(max_len - CUT.len()));
            }
            if next == text {
                break;
            }
            text = next;
        }
        if cut { text + CUT } else { text }
    }
}

impl Default for DefaultErrorSanitizer {
    fn default() -> Self {
        Self::new(&SecurityOptions::default())
    }
}

impl ErrorSanitizer for DefaultErrorSanitizer {
    fn sanitize(&self, failure: &JobFailure) -> String {
        let class = self.clean(short_name(failure.class()), MAX_CLASS);
        let text = self.labelled(&class, &with_causes(failure));
        self.hooks.iter().fold(text, |text, hook| self.labelled(&class, &hook(&text)))
    }
}

impl fmt::Debug for DefaultErrorSanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultErrorSanitizer")
            .field("redact_emails", &self.redact_emails)
            .field("hooks", &self.hooks.len())
            .finish()
    }
}

fn short_name(class: &str) -> &str {
    class.rsplit("::").next().unwrap_or(class)
}

/// The message and the causes, except those that the text has already: many errors print their source themselves.
fn with_causes(failure: &JobFailure) -> String {
    let mut text = failure.message().to_owned();
    for cause in failure.causes() {
        if text.len() > MAX_INPUT {
            break;
        }
        if !text.contains(cause.as_str()) {
            text.push_str("\ncaused by: ");
            text.push_str(cause);
        }
    }
    text
}

/// The text without characters that a reader cannot see, since they forge logs and hide keys; and whether it lacks
/// its end.
fn visible(text: &str) -> (String, bool) {
    let kept = |c: &char| !is_deceptive(*c) || matches!(c, '\n' | '\t');
    if text.len() <= MAX_INPUT {
        let whole = text.strip_suffix(CUT);
        return (whole.unwrap_or(text).chars().filter(kept).collect(), whole.is_some());
    }
    // Up to the end of a word, so that no half of a secret is left that no rule recognises.
    let head = &text[..text.floor_char_boundary(MAX_INPUT)];
    let ends_word = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '&');
    // One unbroken word is kept up to where a secret may begin in it, of which no rule would see the end.
    let begins_value = |c: char| matches!(c, ':' | '=' | '@' | '(');
    let head = match head.rfind(ends_word) {
        Some(end) => &head[..end],
        None => head.split(begins_value).next().unwrap_or_default(),
    };
    (head.chars().filter(kept).collect(), true)
}

#[cfg(test)]
mod patterns;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod tests;
