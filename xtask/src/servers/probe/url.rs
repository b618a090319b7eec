//! The parts of a connection URL that a probe needs.

use anyhow::{Context, Result, bail};

/// A connection URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) has_password: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: Option<String>,
}

impl ServerUrl {
    /// Takes `text` apart; of several hosts it keeps the first.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) =
            text.split_once("://").context("not a URL: expected scheme://host:port/database")?;
        let default_port = match scheme {
            "postgres" | "postgresql" => 5432,
            "mysql" | "mariadb" => 3306,
            "mongodb" | "mongodb+srv" => 27017,
            other => bail!("unknown scheme `{other}`"),
        };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        // A password may hold '@' and '/': the last '@' ends it.
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = host_and_port(hosts.split(',').next().unwrap_or_default(), default_port)?;
        let (user, has_password) = match credentials {
            None => (None, false),
            Some(text) => match text.split_once(':') {
                Some((user, password)) => (Some(user.to_owned()), !password.is_empty()),
                None => (Some(text.to_owned()), false),
            },
        };
        Ok(Self {
            scheme: scheme.to_owned(),
            user: user.filter(|u| !u.is_empty()),
            has_password,
            host,
            port,
            database: (!path.is_empty()).then(|| path.to_owned()),
        })
    }
}

fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').context("an IPv6 address needs a `]`")?;
            (host, after.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        bail!("the URL names no host");
    }
    let port = match port {
        Some(port) => port.parse().with_context(|| format!("`{port}` is not a port"))?,
        None => default_port,
    };
    Ok((host.to_owned(), port))
}

/// The URL as it may be shown: a password is masked.
pub(crate) fn redacted(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let Some((credentials, place)) = rest.rsplit_once('@') else { return text.to_owned() };
    match credentials.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***@{place}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Option<String>, bool, String, u16, Option<String>) {
        let url = ServerUrl::parse(text).unwrap();
        (url.user, url.has_password, url.host, url.port, url.database)
    }

    #[test]
    fn the_usual_forms_are_taken_apart() {
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(
            parts("postgres://ratchet@127.0.0.1:5433/ratchet"),
            (some("ratchet"), false, "127.0.0.1".into(), 5433, some("ratchet"))
        );
        assert_eq!(
            parts("mysql://root:p@ss/w@db/jobs?ssl-mode=disabled"),
            (some("root"), true, "db".into(), 3306, some("jobs"))
        );
        assert_eq!(parts("mongodb://a:1,b:2/?replicaSet=rs0"), (None, false, "a".into(), 1, None));
        assert_eq!(parts("postgresql://[::1]:6000/x").2, "::1");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, reason) in [
            ("localhost:5432", "not a URL"),
            ("redis://localhost", "unknown scheme"),
            ("postgres://host:port/x", "is not a port"),
            ("postgres:///x", "names no host"),
        ] {
            let error = ServerUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(redacted("postgres://app:p@ss@db/x"), "postgres://app:***@db/x");
        assert_eq!(redacted("postgres://app@db/x"), "postgres://app@db/x");
        assert_eq!(redacted("mongodb://db/x"), "mongodb://db/x");
    }
}
