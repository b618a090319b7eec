//! The rules by which secrets are recognized. The order matters: text forms that contain others come first.
//!
//! Word boundaries and classes are ASCII where they can be, so that the automata stay small and linear.

use std::sync::LazyLock;

use super::rule::Rule;
use super::{card, commands, debug, pairs, prose, url};

/// The text without secrets, after one pass.
pub(super) fn redact(text: &str, emails: bool) -> String {
    let mut text = apply(&PRIVATE_KEYS, text.to_owned());
    text = url::strip_user_info(&text);
    text = apply(&LOOSE_USER_INFO, text);
    text = apply(&HEADERS, text);
    text = apply(&PARAMETERS, text);
    text = commands::strip_from_commands(text);
    text = debug::strip_secret_types(text);
    text = pairs::strip_pairs(text);
    text = prose::strip_spoken(text);
    text = apply(&TOKENS, text);
    text = apply(&DATABASE_DETAILS, text);
    if emails {
        text = EMAIL.apply(text);
    }
    card::strip_card_numbers(&text)
}

fn apply(rules: &[Rule], text: String) -> String {
    rules.iter().fold(text, |text, rule| rule.apply(text))
}

static PRIVATE_KEYS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        // Whole, or cut off at the end.
        Rule::all(
            r"(?xs) -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----
              .*? (?: -----END\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?----- | \z )",
        ),
        // Cut off at the beginning.
        Rule::all(
            r"(?x) (?: [A-Za-z0-9+/=]{16,} (?:\s|\\[nr])+ )+ (?: [A-Za-z0-9+/=]+ (?:\s|\\[nr])+ )?
              -----END\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----",
        ),
        Rule::after(r"Private-Lines: [0-9]+\s", r"(?s).*?(?:\nPrivate-MAC: [^\n]*|\z)"),
    ]
});

/// User-info without `://` before it.
static LOOSE_USER_INFO: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        Rule::between(r"(?i)jdbc:oracle:[a-z0-9]+:", r#"[^\s"']+"#, "@", ""),
        Rule::between("[A-Za-z][A-Za-z0-9+.-]*(?:%3A|%3a)(?:%2F|%2f){2}", r#"[^\s/"'<>&]+"#, "%40", ""),
        Rule::between("", r#"[^\s:/@"'(]+:[^\s"']+"#, "@", r"(?:tcp|unix)\("),
        // Only before a port or a path: another text with `:` and `@` is hardly a login.
        Rule::between(
            "",
            r#"[A-Za-z0-9._-]+:[^\s@"'/\[]{3,}"#,
            "@",
            r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]|/)",
        ),
    ]
});

static HEADERS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        // The value of these schemes has several parts.
        Rule::after(
            r#"(?xi) authorization ["']? [\ \t]* (?:=>|[:=]) [\ \t]* ["']?
                     (?: digest | hawk | oauth | signature | aws4-[a-z0-9-]+ ) [\ \t]+"#,
            r"[^\n]+",
        ),
        Rule::after(
            r#"(?xi) authorization \\*["']? [\ \t]* (?:=>|[:=]) [\ \t]* \\*["']?
                     (?: (?: basic | bearer | token | apikey | negotiate | ntlm | dpop
                           | digest | hawk | oauth | signature | aws4-[a-z0-9-]+ ) [\ \t]+ )?"#,
            r#"[^\s"'\\,;]+"#,
        ),
        // A scheme without its header, followed by a text that cannot be a word.
        Rule::after(r"(?i)(?-u:\b)basic[ \t]+", r"[A-Za-z._~+/-]*[0-9=][A-Za-z0-9._~+/=-]{5,}"),
        Rule::after(r#"(?i)(?-u:\b)(?:set-)?cookie\\*["']?[ \t]*[:=][ \t]*\\*["']?"#, r#"[^\s"'\\][^\n"']*"#),
    ]
});

/// Names of keys in the sense of locks, not of maps.
pub(super) const LOCK_KEY: &str = r"(?: api | app | access | account | auth | client | encryption | hmac | master
    | private | secret | server | session | shared (?:[_-]?access)? | signing | ssh | storage ) [_\ -]? key";

/// Names that carry a credential in a URL or a connection string, where even a user name is one.
static PARAMETER: LazyLock<String> = LazyLock::new(|| {
    format!(
        r"(?-u: user | user[_\ ]?(?:name|id) | uid | pass | pwd | pw | sslkey | auth | credentials? | sig | signature
        | hmac | jwt | otp | pin | session (?:[_-]?id)?
        | [a-z_-]* (?: passw(?:or)?d | token | secret )
        | key | {LOCK_KEY} | sharedaccesssignature
        | x-(?:amz|goog)-(?:signature|credential|security-token) )"
    )
});

static PARAMETERS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let parameter = &*PARAMETER;
    vec![
        Rule::after(&format!(r"(?xi) [?&] {parameter} ="), BARE_IN_QUERY),
        Rule::after(
            &format!(r"(?xi) ; [\ \t]* {parameter} [\ \t]* = [\ \t]*"),
            r#""[^"\n]*"?|'[^'\n]*'?|\{[^}\n]*\}?|[^;\n]*"#,
        ),
        Rule::after(r"(?i)(?-u:\b)user[ ]id[ \t]*=[ \t]*", r"[^;\n]*"),
        Rule::after("[?&]code=", "[A-Za-z0-9._~/-]{16,}"),
        // The first pair of a connection string: its value may hold spaces, the next pair tells.
        Rule::between(
            r"(?i)(?-u:\b)(?:password|pwd)[ \t]*=[ \t]*",
            r#"[^;"'\n]*"#,
            ";",
            r#"[ \t]*(?:(?i:[a-z][a-z ]*)=|["'\n]|\z)"#,
        ),
    ]
});

/// An unquoted value in a query: to the next parameter, or to a quote that closes something around it.
const BARE_IN_QUERY: &str = r#"(?:[^&\s"]|"[^\s,}\]):"])*"#;

static TOKENS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        // JSON web tokens, signed or encrypted.
        Rule::all(r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{2,}(?:\.[A-Za-z0-9_-]*){0,3}"),
        Rule::all(
            r"(?x) (?-u:\b) (?:
                gh[opsur]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{16,}
              | gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|oas)-[A-Za-z0-9_.-]{16,}
              | xox[abeprs]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{8,}
              | [sr]k_(?:live|test)_[A-Za-z0-9]{8,} | sq0(?:atp|csp)-[A-Za-z0-9_-]{16,} | whsec_[A-Za-z0-9+/=]{16,}
              | sk-[A-Za-z0-9_-]{16,}
              | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{16,} | GOCSPX-[A-Za-z0-9_-]{16,} | 1//0[A-Za-z0-9_-]{24,}
              | gsk_[A-Za-z0-9]{20,} | xai-[A-Za-z0-9]{20,} | EAACEdEose0cBA[A-Za-z0-9]+ | [0-9]{8,10}:AA[A-Za-z0-9_-]{30,}
              | dckr_pat_[A-Za-z0-9_-]{16,} | lin_api_[A-Za-z0-9]{16,} | ntn_[A-Za-z0-9]{16,} | figd_[A-Za-z0-9_-]{16,}
              | secret_[A-Za-z0-9]{32,} | PMAK-[A-Za-z0-9-]{24,} | NRAK-[A-Z0-9]{20,} | dapi[a-f0-9]{32} | key-[0-9a-f]{32}
              | SK[0-9a-f]{32} | [A-Za-z0-9]+\.atlasv1\.[A-Za-z0-9_=-]{20,} | AGE-SECRET-KEY-1[A-Z0-9]{20,}
              | npm_[A-Za-z0-9]{16,} | pypi-[A-Za-z0-9_-]{16,} | hf_[A-Za-z0-9]{16,}
              | SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}
              | hv[bsr]\.[A-Za-z0-9_-]{16,}
              | do[opr]_v1_[a-f0-9]{32,} | shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{16,}
            )",
        ),
        // Addresses that are a secret.
        Rule::after(
            r"(?i)hooks\.slack\.com/[a-z]+/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/webhookb2/",
            r#"[^\s"'<>]+"#,
        ),
        Rule::after("/bot", r"[0-9]{6,}:[A-Za-z0-9_-]{16,}"),
        // Hashes of passwords.
        Rule::all(
            r"(?x)\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{22,}|\$(?:argon2|scrypt|pbkdf2)[a-z0-9-]*\$[A-Za-z0-9$=,.+/-]+
              |\$(?:1|5|6|7|y|gy)\$[./A-Za-z0-9=,$]{8,}|\{S?SHA[0-9]*\}[A-Za-z0-9+/=]{16,}",
        ),
        Rule::all(r"(?-u:\b)(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA|AIPA)[A-Z0-9]{12,}"),
    ]
});

/// Messages that quote a row. The value may hold whatever closes it, so each runs to the last closing text; a rule of
/// its own is for values that were cut off, since a choice within one pattern would take quadratic time.
static DATABASE_DETAILS: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let key = r"(?-u:\b)Key \([^\n]*?\)=\(";
    let failing_row = r"Failing row contains \(";
    let incorrect = "Incorrect [a-z ]+ value: '";
    let document = r"\{(?:[^\n]*\}|[^\n]*)";
    vec![
        // PostgreSQL
        Rule::between(
            key,
            "(?s).*",
            ") ",
            "already exists|is not present|is still referenced|conflicts with",
        ),
        Rule::after(key, r"[^)\n]*"),
        Rule::between(failing_row, "(?s).*", ").", ""),
        Rule::after(failing_row, r"[^)\n]*"),
        Rule::between(r#"invalid input (?:syntax|value) for [^:\n]*: ""#, r"[^\n]*", "\"", ""),
        // MySQL and MariaDB
        Rule::between("Duplicate entry '", "(?s).*", "' for key", ""),
        Rule::after("Duplicate entry '", r"[^'\n]*"),
        Rule::between(incorrect, "(?s).*", "' for ", ""),
        Rule::after(incorrect, r"[^'\n]*"),
        Rule::between("Truncated incorrect [A-Za-z()0-9,]+ value: '", r"[^\n]*", "'", ""),
        // MongoDB
        Rule::after("dup key: ", document).instead(DOCUMENT),
        Rule::after(r#"keyValue\\*["']?[ \t]*[:=][ \t]*[A-Za-z(]*"#, document).instead(DOCUMENT),
        // SQL Server
        Rule::between(r"duplicate key value is \(", r"[^\n]*", ")", ""),
    ]
});

/// The replacement for a document.
const DOCUMENT: &str = "{ [REDACTED] }";

static EMAIL: LazyLock<Rule> =
    LazyLock::new(|| Rule::all(r"[\p{L}\p{N}._%+'-]+@(?:[\p{L}\p{N}-]+\.)+\p{L}{2,}"));
