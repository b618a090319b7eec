//! Text that crosses the store boundary: checked once, when it is made.

use std::fmt::{self, Write as _};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

/// JSON kept as the text that was given: no key is reordered, no number rounded, no escape rewritten.
///
/// ```
/// use ratchet_api::JsonText;
///
/// let text = JsonText::parse(r#"{"a":1e400,"a":"\ud800"}"#)?;
/// assert_eq!(text.as_str(), r#"{"a":1e400,"a":"\ud800"}"#);
/// assert!(JsonText::parse("{").is_err());
/// # Ok::<(), ratchet_api::InvalidJson>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// Checks that the text is one JSON value, and keeps it as it is.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidJson> {
        let text = text.into();
        // IgnoredAny checks the grammar without building values, so nothing is rounded or rejected for its meaning.
        match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            Ok(_) => Ok(Self(text.into())),
            Err(error) => Err(InvalidJson { line: error.line(), column: error.column() }),
        }
    }

    /// Serializes a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// Wraps text read from a store, unchecked: errors show when it is decoded.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the text as a `T`.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The nesting depth of arrays and objects; 0 for a scalar.
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
        for byte in self.0.bytes() {
            match byte {
                _ if escaped => escaped = false,
                // A backslash occurs in strings only.
                b'\\' => escaped = true,
                b'"' => in_string = !in_string,
                b'[' | b'{' if !in_string => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        deepest
    }
}

/// Omits the text: payloads, params and results may hold secrets, and `{:?}` ends up in logs.
impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonText({} bytes)", self.0.len())
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a character can forge or hide text where it is shown: control characters, line and paragraph separators,
/// and characters that are invisible or change the direction of text.
///
/// ```
/// use ratchet_api::is_deceptive;
///
/// assert!("\n\u{1b}\u{9b}\u{2028}\u{202e}\u{200b}".chars().all(is_deceptive));
/// assert!(!"é 日本 ☕".chars().any(is_deceptive));
/// ```
pub fn is_deceptive(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    invisible || c.is_control()
}

/// Text on one line, for logs: [deceptive](is_deceptive) characters are shown as escapes, so that no text can forge a
/// log line.
///
/// ```
/// use ratchet_api::OneLine;
///
/// let hostile = "late\nERROR node: all jobs lost\u{202e}";
/// assert_eq!(OneLine(hostile).to_string(), r"late\nERROR node: all jobs lost\u{202e}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneLine<'t>(pub &'t str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\n' => f.write_str(r"\n"),
            '\t' => f.write_str(r"\t"),
            c if is_deceptive(c) => write!(f, "{}", c.escape_unicode()),
            c => f.write_char(c),
        })
    }
}

/// The error for text that is not one JSON value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not valid JSON at line {line}, column {column}")]
pub struct InvalidJson {
    /// The line of the error, counted from 1.
    pub line: usize,
    /// The column of the error, counted from 1.
    pub column: usize,
}

/// The error for a name or key that not every store can keep unchanged.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidName {
    /// The kind of name.
    pub what: &'static str,
    /// The problem with it.
    pub problem: NameProblem,
}

crate::debug_as_display!(InvalidName);

/// The problem with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// It has no characters.
    #[error("is empty")]
    Empty,
    /// It has too many bytes.
    #[error("has {len} bytes, at most {max} are kept")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// It holds a character that a store or a log cannot keep.
    #[error("contains the control character U+{0:04X}")]
    Control(u32),
}

fn check(what: &'static str, text: &str, max: usize, refused: fn(char) -> bool) -> Result<(), InvalidName> {
    let problem = if text.is_empty() {
        NameProblem::Empty
    } else if text.len() > max {
        NameProblem::TooLong { len: text.len(), max }
    } else if let Some(c) = text.chars().find(|c| refused(*c)) {
        NameProblem::Control(u32::from(c))
    } else {
        return Ok(());
    };
    Err(InvalidName { what, problem })
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident: $what:literal, $max:literal bytes, refuse $refused:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The maximum length in bytes.
            pub const MAX_LEN: usize = $max;

            /// Checks and wraps the text. Compared byte for byte on every store.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
                let text = text.as_ref();
                check($what, text, $max, $refused)?;
                Ok(Self(text.into()))
            }

            /// Makes a name for display from the text of a row that may be damaged: characters that a name cannot
            /// contain become `?`, and it is cut to the maximum length.
            pub fn readable(text: &str) -> Self {
                let refused: fn(char) -> bool = $refused;
                let mut name: String = text.chars().map(|c| if refused(c) { '?' } else { c }).collect();
                name.truncate(name.floor_char_boundary($max));
                if name.is_empty() {
                    name.push('?');
                }
                Self(name.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidName;

            fn try_from(text: &str) -> Result<Self, Self::Error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    )*};
}

names! {
    /// A key that makes a submission happen only once, for ever: a second job with the same key is never created.
    IdempotencyKey: "idempotency key", 255 bytes, refuse |c| c == '\0';
    /// A key that at most one live job holds at a time.
    BusinessKey: "business key", 255 bytes, refuse |c| c == '\0';
    /// The name of a queue, which has its own slots and its own pause.
    QueueName: "queue name", 64 bytes, refuse char::is_control;
    /// A label to find jobs by.
    Tag: "tag", 64 bytes, refuse char::is_control;
    /// The name of a resource that only a limited number of jobs may use at once.
    ResourceName: "resource name", 100 bytes, refuse char::is_control;
    /// The name of a lock, for work that only one node may do at a time.
    LockName: "lock name", 128 bytes, refuse char::is_control;
    /// The stable name of a service whose methods are jobs.
    TargetName: "target", 255 bytes, refuse char::is_control;
    /// The name of one job of a target.
    MethodName: "method", 128 bytes, refuse char::is_control;
}

impl Default for QueueName {
    fn default() -> Self {
        // Most jobs are in this queue, so its name is allocated once.
        static DEFAULT: LazyLock<QueueName> = LazyLock::new(|| QueueName("default".into()));
        DEFAULT.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_wrong_with_them() {
        let wrong = |text: &str| BusinessKey::new(text).unwrap_err().to_string();
        assert_eq!(wrong(""), "business key is empty");
        assert_eq!(wrong(&"k".repeat(256)), "business key has 256 bytes, at most 255 are kept");
        assert_eq!(wrong("a\0b"), "business key contains the control character U+0000");
        assert!(BusinessKey::new("line\nbreak").is_ok(), "keys are bytes, only NUL cannot be kept");
        assert!(QueueName::new("line\nbreak").is_err());
        assert!(BusinessKey::new("k".repeat(255)).is_ok());
    }

    #[test]
    fn nothing_on_one_line_begins_another_or_hides() {
        for (text, line) in [
            ("a\n\tb\r", r"a\n\tb\u{d}"),
            ("\u{1b}[2K\u{85}\u{9b}", r"\u{1b}[2K\u{85}\u{9b}"),
            ("\u{ad}\u{61c}\u{180e}\u{200b}\u{200f}", r"\u{ad}\u{61c}\u{180e}\u{200b}\u{200f}"),
            ("\u{2028}\u{202e}\u{2060}\u{206f}", r"\u{2028}\u{202e}\u{2060}\u{206f}"),
            ("\u{feff}\u{fff9}\u{fffb}\u{e0000}\u{e007f}", r"\u{feff}\u{fff9}\u{fffb}\u{e0000}\u{e007f}"),
        ] {
            assert_eq!(OneLine(text).to_string(), line);
        }
        let plain = "naïve café ☕ 日本語 \\ \"quoted\" \u{2027}\u{202f}\u{205f}\u{2070}";
        assert_eq!(OneLine(plain).to_string(), plain);
    }

    #[test]
    fn json_shows_its_size_and_no_more_when_it_is_debugged() {
        let json = JsonText::parse(r#"{"password":"hunter2"}"#).unwrap();
        assert_eq!(format!("{json:?}"), "JsonText(22 bytes)");
    }

    #[test]
    fn json_is_checked_for_grammar_only() {
        for text in ["null", r#""\u0000""#, r#""\ud800""#, "1e400", r#"{"a":1,"a":2}"#, " [1] "] {
            let parsed = JsonText::parse(text).unwrap();
            assert_eq!((parsed.as_str(), parsed.to_string()), (text, text.to_owned()));
        }
        for text in ["", "nul", "[1", "{\"a\"}", "\"\0\"", "1 2", "\u{feff}1"] {
            assert!(JsonText::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for (text, depth) in [
            ("1", 0),
            ("[]", 1),
            ("[[],[]]", 2),
            (r#"{"a":[{}]}"#, 3),
            (r#""[[\"[[""#, 0),
            (r#"["\\",[]]"#, 2),
            (r#"["]",[]]"#, 2),
            (&deep, 10_000),
        ] {
            assert_eq!(JsonText::parse(text).unwrap().depth(), depth);
        }
    }
}
