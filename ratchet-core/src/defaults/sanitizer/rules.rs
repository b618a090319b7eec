//! What secrets look like. The order matters: text forms that contain others come first.
//!
//! Word boundaries and classes are ASCII where they can be, so that the automata stay small and linear.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::{REDACTED, card, url};

/// A pattern and what takes its place.
type Rule = (Regex, &'static str);

/// The text without secrets, after one pass.
pub(super) fn redact(text: &str, emails: bool) -> String {
    let mut text = apply(&PRIVATE_KEYS, text.to_owned());
    text = url::strip_user_info(&text);
    text = apply(&LOOSE_USER_INFO, text);
    text = apply(&HEADERS, text);
    text = apply(&PARAMETERS, text);
    text = strip_pairs(&text);
    text = apply(&TOKENS, text);
    text = apply(&DATABASE_DETAILS, text);
    if emails {
        text = apply(&EMAILS, text);
    }
    card::strip_card_numbers(&text)
}

fn apply(rules: &[Rule], text: String) -> String {
    rules.iter().fold(text, |text, (pattern, instead)| match pattern.replace_all(&text, *instead) {
        std::borrow::Cow::Owned(changed) => changed,
        std::borrow::Cow::Borrowed(_) => text,
    })
}

pub(super) fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("patterns are constants and tested")
}

fn rules<const N: usize>(rules: [(&str, &'static str); N]) -> Vec<Rule> {
    rules.map(|(pattern, instead)| (regex(pattern), instead)).into()
}

static PRIVATE_KEYS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules([
        // Whole, or cut off at the end.
        (
            r"(?xs) -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----
              .*? (?: -----END\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?----- | \z )",
            REDACTED,
        ),
        // Cut off at the beginning.
        (
            r"(?x) (?: [A-Za-z0-9+/=]{16,} (?:\s|\\[nr])+ )+ (?: [A-Za-z0-9+/=]+ (?:\s|\\[nr])+ )?
              -----END\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----",
            REDACTED,
        ),
    ])
});

/// User-info without `://` before it.
static LOOSE_USER_INFO: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules([
        (r#"(?i)(jdbc:oracle:[a-z0-9]+:)[^\s"']+@"#, "${1}[REDACTED]@"),
        (r#"[^\s:/@"'(]+:[^\s"']+@((?:tcp|unix)\()"#, "[REDACTED]@${1}"),
        // Only before a port or a path: what else has `:` and `@` is hardly a login.
        (
            r#"[A-Za-z0-9._-]+:[^\s@"'/\[]{3,}@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]|/))"#,
            "[REDACTED]@${1}",
        ),
    ])
});

static HEADERS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules([
        // The value of these schemes has several parts.
        (
            r#"(?xi) ( authorization ["']? [\ \t]* (?:=>|[:=]) [\ \t]* ["']?
                       (?: digest | hawk | oauth | signature | aws4-[a-z0-9-]+ ) [\ \t]+ ) [^\n]+"#,
            "${1}[REDACTED]",
        ),
        (
            r#"(?xi) ( authorization \\*["']? [\ \t]* (?:=>|[:=]) [\ \t]* \\*["']?
                       (?: (?: basic | bearer | token | apikey | negotiate | ntlm | dpop
                             | digest | hawk | oauth | signature | aws4-[a-z0-9-]+ ) [\ \t]+ )? )
                     [^\s"'\\,;]+"#,
            "${1}[REDACTED]",
        ),
        // A scheme without its header: only what can be no word.
        (
            r"(?i)((?-u:\b)(?:bearer|basic)[ \t]+)[A-Za-z._~+/-]*[0-9=][A-Za-z0-9._~+/=-]{5,}",
            "${1}[REDACTED]",
        ),
        (r#"(?i)((?-u:\b)(?:set-)?cookie["']?[ \t]*:[ \t]*["']?)[^\s=;,"']+=[^\n"']*"#, "${1}[REDACTED]"),
    ])
});

/// Keys in the sense of locks, not of maps.
const LOCK_KEY: &str = r"(?: api | app | access | account | auth | client | encryption | hmac | master | private
    | server | session | shared (?:[_-]?access)? | signing | ssh | storage ) [_-]? key";

/// Names that carry a credential in a URL or a connection string, where even a user name is one.
static PARAMETER: LazyLock<String> = LazyLock::new(|| {
    format!(
        r"(?: user | user[_\ ]?(?:name|id) | uid
        | pass | (?:[a-z]{{1,20}}[_-]?)?passw(?:or)?d | pwd | sslkey
        | (?:[a-z]{{1,20}}[_-]?){{0,2}}token | (?:[a-z]{{1,20}}[_-]?)?secret | auth | credentials? | sig | signature
        | key | {LOCK_KEY} | sharedaccesssignature
        | x-(?:amz|goog)-(?:signature|credential|security-token) )"
    )
});

static PARAMETERS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules([
        (&format!(r#"(?xi) ( [?&] {} = ) {BARE_IN_QUERY}"#, *PARAMETER), "${1}[REDACTED]"),
        (
            &format!(
                r#"(?xi) ( ; [\ \t]* {} [\ \t]* = [\ \t]* )
                         (?: "[^"\n]*" | '[^'\n]*' | \{{[^}}\n]*\}} | [^;\n]* )"#,
                *PARAMETER
            ),
            "${1}[REDACTED]",
        ),
        (r"(?i)((?-u:\b)user[ ]id[ \t]*=[ \t]*)[^;\n]*", "${1}[REDACTED]"),
        (r#"((?-u:\s)(?:-u|--user)[ \t=]+)[^\s:"']+:\S+"#, "${1}[REDACTED]"),
        // The first pair of a connection string: its value may hold spaces, the next pair tells.
        (
            r#"(?xi) ( (?-u:\b) (?: password | pwd ) [\ \t]* = [\ \t]* ) [^;"'\n]*
                     ( ; [\ \t]* (?: [a-z][a-z\ ]* = | ["'\n] | \z ) )"#,
            "${1}[REDACTED]${2}",
        ),
    ])
});

/// An unquoted value in a query: to the next parameter, or to a quote that closes something around it.
const BARE_IN_QUERY: &str = r#"(?: [^&\s"] | "[^\s,}\]):"] )*"#;

/// Names whose value is a secret wherever they stand.
static KEY: LazyLock<String> = LazyLock::new(|| {
    format!(
        r"[A-Za-z0-9_.-]* (?:
          passw(?:or)?d[A-Za-z0-9_-]* | passwort | passphrase | pwd[0-9]* | [_-]pass
        | secret (?: s | [_-][A-Za-z0-9_-]* | (?:access)?key | value )?
        | token (?: [_-]? (?: value | secret | key | id ) )?
        | {LOCK_KEY} | credentials? | connection[_-]?string | [_-]auth
        | x-(?:amz|goog)-(?:signature|credential|security-token) )"
    )
});

/// A number ends where the next member begins, unlike other bare values.
static JSON_SCALAR: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r#"(?xi) ( {} \\*["'] [\ \t]* : [\ \t]* ) (?: null | true | false | -?[0-9.]+ ) ( \s*[,}}\]] )"#,
        *KEY
    ))
});

/// What may stand between a key and its value: `=`, `:`, `=>`; `("key", "value")`; `--key value`; `<key>value`.
static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    let key = &*KEY;
    regex(&format!(
        r#"(?xis)
        (?P<key>
            (?: {key} (?:\\*["'])? [\ \t]* (?: => | =+:* | : )
              | (?-u:\b) pass [\ \t]* =
              | \( \\*["'] (?: {key} | [a-z-]*authorization ) \\*["'] [\ \t]* ,
              | -- {key} [\ \t]
            ) [\ \t]* )
        (?:
            (?P<redacted> \[REDACTED\] )
          | (?P<escaped> \\+"[^"]*" )
          | (?P<quoted> "(?: [^"\\] | \\. | "" )*" )
          | '(?: [^'\\] | \\. | '' )*' | `[^`\n]*` | ["'`][^\n]*
          | (?P<bare>
                (?: (?: [A-Z_][A-Z0-9_]*\(\s* ){{1,2}} "(?: [^"\\] | \\. )*" (?: ,?\s*\) )*
                  | (?: [\[{{][^\]}}\n]* )? [^\s:"'`] )
                (?: [^\s"] | "[^\s,}}\]):"] )* )
        )"#
    ))
});

static ELEMENT: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!(r"(?xi) ( < {} (?:\s[^>]*)? > ) [^<]+", *KEY)));

/// `CREATE USER app PASSWORD 'hunter2'`, or a message that quotes one.
static QUOTED_AFTER_WORD: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?xi) ( (?-u:\b) (?: password | passphrase | identified\ by ) [\ \t]+ )
           (?: '(?: [^'\\] | \\. | '' )*' | "(?: [^"\\] | \\. | "" )*" )"#,
    )
});

fn strip_pairs(text: &str) -> String {
    let text = JSON_SCALAR.replace_all(text, "${1}[REDACTED]${2}");
    let text = PAIR.replace_all(&text, |pair: &Captures<'_>| {
        let key = &pair["key"];
        if let Some(bare) = pair.name("bare") {
            return strip_bare(key, bare.as_str());
        }
        match (pair.name("escaped"), pair.name("quoted")) {
            (Some(_), _) => format!(r#"{key}\"{REDACTED}\""#),
            (_, Some(_)) => format!(r#"{key}"{REDACTED}""#),
            _ => format!("{key}{REDACTED}"),
        }
    });
    let text = ELEMENT.replace_all(&text, "${1}[REDACTED]");
    QUOTED_AFTER_WORD.replace_all(&text, "${1}[REDACTED]").into_owned()
}

/// What closes a list or a sentence behind a value is not part of it, but brackets that the value opened are.
fn strip_bare(key: &str, value: &str) -> String {
    let closing = |c| matches!(c, ')' | ']' | '}');
    let secret =
        value.trim_end_matches(|c| closing(c) || matches!(c, ',' | ';' | '.' | '>' | '"' | '\'' | '\\'));
    if matches!(secret, "" | "{" | "[" | "(") {
        return format!("{key}{value}");
    }
    let opened = secret.matches(['(', '[', '{']).count();
    let open = opened.saturating_sub(secret.matches(closing).count());
    let behind = &value[secret.len()..];
    let own = behind.match_indices(closing).take(open).last().map_or(0, |(bracket, _)| bracket + 1);
    format!("{key}{REDACTED}{}", &behind[own..])
}

static TOKENS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules([
        // JSON web tokens, signed or encrypted.
        (r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{2,}(?:\.[A-Za-z0-9_-]*){0,3}", REDACTED),
        (
            r"(?x) (?-u:\b) (?:
                gh[opsur]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{16,}
              | gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|oas)-[A-Za-z0-9_.-]{16,}
              | xox[abeprs]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{8,}
              | [sr]k_(?:live|test)_[A-Za-z0-9]{8,} | whsec_[A-Za-z0-9+/=]{16,}
              | sk-[A-Za-z0-9_-]{16,}
              | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{16,}
              | npm_[A-Za-z0-9]{16,} | pypi-[A-Za-z0-9_-]{16,} | hf_[A-Za-z0-9]{16,}
              | SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}
              | hv[bsr]\.[A-Za-z0-9_-]{16,}
              | do[opr]_v1_[a-f0-9]{32,} | shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{16,}
            )",
            REDACTED,
        ),
        // Addresses that are a secret.
        (r#"(?i)(hooks\.slack\.com/[a-z]+/|discord(?:app)?\.com/api/webhooks/)[^\s"'<>]+"#, "${1}[REDACTED]"),
        (r"(/bot)[0-9]{6,}:[A-Za-z0-9_-]{16,}", "${1}[REDACTED]"),
        // Hashes of passwords.
        (
            r"\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{22,}|\$(?:argon2|scrypt|pbkdf2)[a-z0-9-]*\$[A-Za-z0-9$=,.+/-]+",
            REDACTED,
        ),
        (r"(?-u:\b)(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA|AIPA)[A-Z0-9]{12,}", REDACTED),
    ])
});

/// Messages that quote a row. The value may hold whatever closes it, so each runs to the last closing text; a rule of
/// its own is for values that were cut off, since a choice within one pattern would take quadratic time.
static DATABASE_DETAILS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules([
        // PostgreSQL
        (
            r"(?xs) ( (?-u:\b) Key\ \([^\n]*?\)=\( ) .*
              ( \)\ (?: already\ exists | is\ not\ present | is\ still\ referenced | conflicts\ with ) )",
            "${1}[REDACTED]${2}",
        ),
        (r"((?-u:\b)Key \([^\n]*?\)=\()[^)\n]*", "${1}[REDACTED]"),
        (r"(?s)(Failing row contains \().*(\)\.)", "${1}[REDACTED]${2}"),
        (r"(Failing row contains \()[^)\n]*", "${1}[REDACTED]"),
        (r#"(invalid input (?:syntax|value) for [^:\n]*: ")[^\n]*(")"#, "${1}[REDACTED]${2}"),
        // MySQL and MariaDB
        (r"(?s)(Duplicate entry ').*(' for key)", "${1}[REDACTED]${2}"),
        (r"(Duplicate entry ')[^'\n]*", "${1}[REDACTED]"),
        (r"(?s)(Incorrect [a-z ]+ value: ').*(' for )", "${1}[REDACTED]${2}"),
        (r"(Incorrect [a-z ]+ value: ')[^'\n]*", "${1}[REDACTED]"),
        (r"(Truncated incorrect [A-Za-z()0-9,]+ value: ')[^\n]*(')", "${1}[REDACTED]${2}"),
        // MongoDB
        (r"(dup key: )\{(?:[^\n]*\}|[^\n]*)", "${1}{ [REDACTED] }"),
        (r#"(keyValue\\*["']?[ \t]*[:=][ \t]*[A-Za-z(]*)\{(?:[^\n]*\}|[^\n]*)"#, "${1}{ [REDACTED] }"),
        // SQL Server
        (r"(duplicate key value is \()[^\n]*(\))", "${1}[REDACTED]${2}"),
    ])
});

static EMAILS: LazyLock<Vec<Rule>> =
    LazyLock::new(|| rules([(r"[\p{L}\p{N}._%+'-]+@(?:[\p{L}\p{N}-]+\.)+\p{L}{2,}", REDACTED)]));
