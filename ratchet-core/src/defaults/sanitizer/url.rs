use std::sync::LazyLock;

use regex::Regex;

use super::REDACTED;

/// Where a URL ends, or its parameters begin: an `@` behind that belongs to a value.
static END: LazyLock<Regex> = LazyLock::new(|| super::rule::regex(r"\s|[?&;#][A-Za-z][A-Za-z0-9_.-]*="));
/// The most bytes of a user-info.
const MAX_LEN: usize = 4096;

/// Replaces the user-info of every URL, of any scheme.
pub(super) fn strip_user_info(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    let mut next_at = Ahead::new(text, |text, from| text[from..].find('@').map(|at| from + at));
    let mut next_end = Ahead::new(text, |text, from| END.find_at(text, from).map(|end| end.start()));
    while let Some(colon) = text[done..].find("://") {
        let start = done + colon + "://".len();
        let has_scheme = ends_with_scheme(&text[done..done + colon]);
        out.push_str(&text[done..start]);
        done = start;
        let end = next_end.from(start).min(text.floor_char_boundary(start + MAX_LEN));
        let has_user = has_scheme && next_at.from(start) < end;
        if let Some(end) = has_user.then(|| user_info_end(&text[start..end])).flatten() {
            out.push_str(REDACTED);
            done += end;
        }
    }
    out.push_str(&text[done..]);
    out
}

/// A search for the next place, made only when the last one found was passed, so that the text is read once.
struct Ahead<'t, F> {
    text: &'t str,
    find: F,
    place: Option<usize>,
}

impl<'t, F: Fn(&'t str, usize) -> Option<usize>> Ahead<'t, F> {
    const fn new(text: &'t str, find: F) -> Self {
        Self { text, find, place: None }
    }

    /// The first place that is not before `from`, or the end of the text.
    fn from(&mut self, from: usize) -> usize {
        match self.place {
            Some(place) if place >= from => place,
            _ => *self.place.insert((self.find)(self.text, from).unwrap_or(self.text.len())),
        }
    }
}

/// Whether a text ends with a possible scheme: a letter among other characters of schemes.
fn ends_with_scheme(text: &str) -> bool {
    let in_scheme = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+.-".contains(byte);
    text.as_bytes().iter().rev().take_while(in_scheme).any(u8::is_ascii_alphabetic)
}

/// Where the user-info ends: at the last `@`, since passwords with a raw `@` or `/` are common and hosts have none.
fn user_info_end(url: &str) -> Option<usize> {
    // Without `@` or `:` before the path, the `@` is part of the path: https://host/@scope/name
    let authority = url.split(['/', '?', '#']).next()?;
    if !authority.contains(['@', ':']) {
        return None;
    }
    // A quote ends a URL, unless it stands before the only `@` and so in the password.
    let url = match url.find(['"', '\'', '`', '<', '>']) {
        Some(quote) if url[..quote].contains('@') => &url[..quote],
        _ => url,
    };
    url.rfind('@')
}
