//! Secrets in command lines and statements.

use std::sync::LazyLock;

use super::rule::Rule;

/// An argument, in quotes or not.
const ARGUMENT: &str = r#"'[^'\n]*'?|"[^"\n]*"?|[^\s'"]+"#;

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    // Up to an option of the same command.
    let option = |program: &str, option: &str| {
        Rule::after(&format!(r"(?-u:\b)(?:{program})(?-u:\b)[^\n|;]*?[ \t]{option}"), ARGUMENT)
    };
    vec![
        // `-p` alone asks for the password.
        option("(?:mysql|mariadb)[a-z_-]*", "-p"),
        option("sshpass|mongo[a-z]*|(?:docker|podman|az|oc|cf)[ \t]+login", "-p[ \t]*"),
        option("redis-cli", "-a[ \t]+"),
        option("ldap[a-z]+", "-w[ \t]*"),
        Rule::after(r"(?-u:\s)(?:-u[ \t=]*|--user[ \t=]+)", r#"[^\s:"']+:\S+"#),
        Rule::after(r"(?-u:\s)-U[ \t]*[^\s%]+%", r"\S+"),
        Rule::after(r"(?-u:\b)sqlplus[ \t]+[^\s/]+/", r"[^\s@]+"),
        Rule::between("", r#"[A-Za-z0-9_$\#]+/[^\s@"'/]+"#, "@//", ""),
        Rule::after(r"(?i)(?-u:\b)identified by[ \t]+", r#"[^\s'";]+"#),
        Rule::after(r"(?i)(?-u:\b)password for [^\n=]{1,128}=[ \t]*", ARGUMENT),
    ]
});

pub(super) fn strip_from_commands(text: String) -> String {
    RULES.iter().fold(text, |text, rule| rule.apply(text))
}
