use regex::Regex;

use super::REDACTED;

/// The pattern of a secret, and of the text around it that stays.
///
/// A match is found as a whole and taken apart afterwards: groups would make the search many times slower.
pub(super) struct Rule {
    whole: Regex,
    before: Option<Regex>,
    /// How the text behind the secret begins.
    behind: Option<&'static str>,
    instead: &'static str,
    /// A condition on the secret beside its pattern.
    only_if: Option<fn(&str) -> bool>,
}

impl Rule {
    /// A secret that is recognized by its own form.
    pub(super) fn all(secret: &str) -> Self {
        Self { whole: regex(secret), before: None, behind: None, instead: REDACTED, only_if: None }
    }

    /// A secret that is recognized by the text before it.
    pub(super) fn after(before: &str, secret: &str) -> Self {
        let whole = regex(&format!("(?:{before})(?:{secret})"));
        Self { whole, before: Some(start(before)), behind: None, instead: REDACTED, only_if: None }
    }

    /// A secret as of [`after`](Self::after), behind which must come `behind`, literally, and then `rest`, in which
    /// `behind` does not occur again.
    pub(super) fn between(before: &str, secret: &str, behind: &'static str, rest: &str) -> Self {
        let secret = format!("(?:{secret}){}(?:{rest})", regex::escape(behind));
        Self { behind: Some(behind), ..Self::after(before, &secret) }
    }

    /// Sets the replacement for the secret.
    pub(super) fn instead(self, instead: &'static str) -> Self {
        Self { instead, ..self }
    }

    /// Takes only secrets for which `holds` is true. The text of a match that is none is searched again.
    pub(super) fn only_if(self, holds: fn(&str) -> bool) -> Self {
        Self { only_if: Some(holds), ..self }
    }

    pub(super) fn apply(&self, text: String) -> String {
        if let Some(holds) = self.only_if {
            return self.apply_if(&text, holds);
        }
        replace_all(&self.whole, text, |found, out| {
            let (before, behind) = self.around(found);
            out.extend([before, self.instead, behind]);
        })
    }

    fn apply_if(&self, text: &str, holds: fn(&str) -> bool) -> String {
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        while let Some(found) = self.whole.find_at(text, done) {
            let (before, _) = self.around(found.as_str());
            let secret = found.start() + before.len();
            out.push_str(&text[done..secret]);
            done = secret;
            if holds(&text[secret..found.end()]) {
                out.push_str(self.instead);
                done = found.end();
            }
        }
        out.push_str(&text[done..]);
        out
    }

    /// The parts of a match that stay: before and behind the secret.
    fn around<'t>(&self, found: &'t str) -> (&'t str, &'t str) {
        let start =
            self.before.as_ref().and_then(|before| before.find(found)).map_or(0, |before| before.end());
        let (before, secret) = found.split_at(start);
        let behind = self.behind.and_then(|behind| secret.rfind(behind)).map_or("", |end| &secret[end..]);
        (before, behind)
    }
}

/// Compiles a constant pattern.
pub(super) fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("patterns are constants and tested")
}

/// Compiles a constant pattern that matches at the start of a text.
pub(super) fn start(pattern: &str) -> Regex {
    regex(&format!(r"\A(?:{pattern})"))
}

/// Writes something else in the place of each match.
pub(super) fn replace_all(pattern: &Regex, text: String, write: impl Fn(&str, &mut String)) -> String {
    let mut matches = pattern.find_iter(&text).peekable();
    if matches.peek().is_none() {
        drop(matches);
        return text;
    }
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for found in matches {
        out.push_str(&text[done..found.start()]);
        write(found.as_str(), &mut out);
        done = found.end();
    }
    out.push_str(&text[done..]);
    out
}
