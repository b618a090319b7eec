use std::sync::LazyLock;

use regex::Regex;

use super::REDACTED;

static SCHEME: LazyLock<Regex> = LazyLock::new(|| super::rules::regex(r"[A-Za-z][A-Za-z0-9+.-]*://"));
/// Where parameters begin: an `@` behind it belongs to a value.
static PARAMETER: LazyLock<Regex> = LazyLock::new(|| super::rules::regex(r"[?&;#][A-Za-z][A-Za-z0-9_. -]*="));
/// No user-info is longer; keeps the search linear.
const MAX_LEN: usize = 4096;

/// Replaces the user-info of every URL, of any scheme.
pub(super) fn strip_user_info(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(scheme) = SCHEME.find_at(text, done) {
        out.push_str(&text[done..scheme.end()]);
        done = scheme.end();
        let rest = &text[done..];
        if let Some(end) = user_info_end(&rest[..rest.floor_char_boundary(MAX_LEN)]) {
            out.push_str(REDACTED);
            done += end;
        }
    }
    out.push_str(&text[done..]);
    out
}

/// Where the user-info ends: at the last `@`, since passwords with a raw `@` or `/` are common and hosts have none.
fn user_info_end(rest: &str) -> Option<usize> {
    rest.rfind('@')?;
    let url = rest.split(char::is_whitespace).next()?;
    let url = &url[..PARAMETER.find(url).map_or(url.len(), |parameter| parameter.start())];
    // A quote ends a URL, unless it stands before the only `@` and so in the password.
    let url = match url.find(['"', '\'', '`', '<', '>']) {
        Some(quote) if url[..quote].contains('@') => &url[..quote],
        _ => url,
    };
    let end = url.rfind('@')?;
    // Without `@` or `:` before the path, the `@` is part of the path: https://host/@scope/name
    let authority = url.split(['/', '?', '#']).next()?;
    authority.contains(['@', ':']).then_some(end)
}
