//! Keys with their secret values, in all the ways in which people and programs write them.

use std::sync::LazyLock;

use regex::Regex;

use super::REDACTED;
use super::rule::{Rule, regex, replace_all, start};
use super::rules::LOCK_KEY;

/// Names whose value is a secret wherever they stand.
pub(super) static KEY: LazyLock<String> = LazyLock::new(|| {
    format!(
        r"(?-u: [A-Za-z0-9_.-]* (?:
          passw(?:or)?d[A-Za-z0-9_-]* | passwort | kennwort | passphrase | passcode | pwd[0-9]* | [_-]pass
        | j?sess(?:ion)?[_-]?id | (?:mfa|otp|auth)[_-]?code
        | secret (?: s | [_-][A-Za-z0-9_-]* | (?:access)?key | value )?
        | token (?: [_-]? (?: value | secret | key | id ) )?
        | {LOCK_KEY} | credentials? | connection[_-]?string | [_-]auth
        | x-(?:amz|goog)-(?:signature|credential|security-token) ) )"
    )
});

/// A key and the signs between it and its value: `=`, `:`, `=>`; `("key", "value")`; `--key value`.
static HEAD: LazyLock<String> = LazyLock::new(|| {
    let key = &*KEY;
    format!(
        r#"(?xi) (?:
              {key} (?:\\*["'])? [\ \t]* (?: => | -> | <- | := | =+:* | : )
            | (?-u:\b) (?: pass | auth | otp | totp | pin | cvv2? | cvc2? ) (?:\\*["'])? [\ \t]* =
            | (?-u:\b) (?: otp | totp | pin | cvv2? | cvc2? ) (?:\\*["'])? [\ \t]* :
            | \( \\*["'] (?: {key} | [a-z-]*authorization | (?:set-)?cookie ) \\*["'] [\ \t]* ,
            | -- {key} [\ \t]
            ) [\ \t]*"#
    )
});

static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r#"(?xis) (?: {} ) (?:
            \[REDACTED\]
          | \\+"[^"]*"
          | {QUOTED}
          | '(?: [^'\\] | \\. | '' )*' | `[^`\n]*` | ["'`][^\n]*
          | (?: (?: [A-Z_][A-Z0-9_]*\(\s* ){{1,2}} "(?: [^"\\] | \\. )*" (?: ,?\s*\) )*
              | (?: [\[{{][^\]}}\n]* )? [^\s:"'`] )
            (?: [^\s"] | "[^\s,}}\]):"] )*
        )"#,
        *HEAD
    ))
});

static PAIR_HEAD: LazyLock<Regex> = LazyLock::new(|| start(&HEAD));

pub(super) const QUOTED: &str = r#""(?:[^"\\]|\\.|"")*""#;

static QUOTED_VALUE: LazyLock<Regex> = LazyLock::new(|| regex(&format!(r"(?s)\A{QUOTED}\z")));

/// A number ends where the next member begins, unlike other bare values.
static JSON_SCALAR: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r#"(?xi) {} \\*["'] [\ \t]* : [\ \t]* (?: null | true | false | -?[0-9.]+ ) \s*[,}}\]]"#,
        *KEY
    ))
});

static OTHERS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        Rule::after(&format!(r"(?xi) < (?:[a-z0-9_-]+:)? {} (?:\s[^>]*)? >", *KEY), "[^<]+"),
        Rule::after(&format!(r#"(?xi) (?:name|key) = ["'] {} ["'] [^<>]* >"#, *KEY), "[^<]+"),
        Rule::after(
            r#"(?i)(?-u:\b)pass\\*["']?[ \t]*:[ \t]*"#,
            r#""[^"\n]*"?|'[^'\n]*'?|[^\s0-9,;(){}\[\]"'][^\s,;)}\]]{3,}"#,
        ),
        // Other languages.
        Rule::after(
            r#"(?i)(?:contraseña|mot de passe|senha|wachtwoord|пароль|密码|密碼|パスワード|비밀번호)["']?[ \t]*[:=：][ \t]*"#,
            r#""[^"\n]*"?|'[^'\n]*'?|[^\s,;"'\[]+"#,
        ),
        // `CREATE USER app PASSWORD 'hunter2'`, or a message that quotes one.
        Rule::after(
            r"(?i)(?-u:\b)(?:password|passphrase|identified by)[ \t]+",
            &format!(r"'(?:[^'\\]|\\.|'')*'|{QUOTED}"),
        ),
    ]
});

/// Pairs whose quotes and signs are escaped for some other language, whose value stands on the next line, or whose key is
/// itself the value of a pair.
static WRAPPED: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let key = &*KEY;
    let quote = r"(?: &quot; | &\#34; | \\u0022 | %22 | %27 )";
    let sign = r"(?: &\#61; | &\#58; | \\u003[ad] | %3[ad] )";
    vec![
        Rule::after(
            &format!(r"(?xi) {key} (?: {quote} \s* (?: [:=] | {sign} ) \s* {quote}? | {sign} \s* {quote}? )"),
            r#"(?i)(?:[^\s&%\\"'<>]|%[013-9a-f][0-9a-f]|%2[013-589a-f])+"#,
        ),
        Rule::after(
            &format!(r#"(?xi) {key} \\*["']? [\ \t]* [:=] [\ \t]* (?: [|>][+-]? [\ \t]* )? \n [\ \t]+"#),
            r#"[^\s:{}\[\]"']+"#,
        ),
        Rule::after(&format!(r#"(?xi) {key} \\*["']? [\ \t]* =+ [\ \t]* \n"#), r#"[^\s:={}\[\]"']+"#),
        Rule::after(&format!(r#"(?xi) {key} \\*["']? [\ \t]* : [\ \t]* ![!a-z]+ [\ \t]+"#), r"[^\s\[]\S*"),
        Rule::after(
            &format!(
                r#"(?xi) (?-u:\b) (?: name | key ) \\*["']? \s* [:=] \s* \\*["']? {key} \\*["']? [\s,;]* \\*["']?
                   value \\*["']? \s* [:=] \s* \\*["']?"#
            ),
            r#"[^\s,;}"'\\\[][^\s,;}"'\\]*"#,
        ),
    ]
});

pub(super) fn strip_pairs(text: String) -> String {
    let text = WRAPPED.iter().fold(text, |text, rule| rule.apply(text));
    let text = replace_all(&JSON_SCALAR, text, strip_scalar);
    let text = replace_all(&PAIR, text, |pair, out| {
        let (head, value) = pair.split_at(PAIR_HEAD.find(pair).map_or(0, |head| head.end()));
        out.push_str(head);
        strip_value(value, out);
    });
    OTHERS.iter().fold(text, |text, rule| rule.apply(text))
}

fn strip_scalar(pair: &str, out: &mut String) {
    let (head, value) = pair.split_at(pair.rfind(':').map_or(0, |colon| colon + 1));
    let secret = value.trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']'));
    let behind = value.trim_start().trim_start_matches(secret);
    out.extend([head, &value[..value.len() - value.trim_start().len()], REDACTED, behind]);
}

/// Redacts a value and keeps its quotes, so that JSON stays JSON.
fn strip_value(value: &str, out: &mut String) {
    match value.chars().next() {
        // The apparent value was part of `==`.
        None => {}
        Some('"') if QUOTED_VALUE.is_match(value) => out.extend(["\"", REDACTED, "\""]),
        Some('\\') if value.ends_with('"') => out.extend(["\\\"", REDACTED, "\\\""]),
        Some('"' | '\'' | '`') => out.push_str(REDACTED),
        Some(_) => strip_bare(value, out),
    }
}

/// Redacts an unquoted value. Signs that close a list or a sentence behind it are not part of it, but brackets that it
/// opened are.
fn strip_bare(value: &str, out: &mut String) {
    let closing = |c| matches!(c, ')' | ']' | '}');
    let secret =
        value.trim_end_matches(|c| closing(c) || matches!(c, ',' | ';' | '.' | '>' | '"' | '\'' | '\\'));
    if matches!(secret, "" | "{" | "[" | "(") {
        return out.push_str(value);
    }
    let opened = secret.matches(['(', '[', '{']).count();
    let open = opened.saturating_sub(secret.matches(closing).count());
    let behind = &value[secret.len()..];
    let own = behind.match_indices(closing).take(open).last().map_or(0, |(bracket, _)| bracket + 1);
    out.extend([REDACTED, &behind[own..]]);
}
