//! Parsing of store URLs.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Error, Result, anyhow, bail};

/// The location of a store, by the kind of its database.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// The path of a file.
    Sqlite(PathBuf),
    /// A URL that may hold a password.
    Postgres(String),
    /// A URL that may hold a password.
    MongoDb(String),
}

impl Location {
    /// Parses a URL. Errors repeat only its scheme: the rest may contain a password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        match scheme.to_ascii_lowercase().as_str() {
            "sqlite" => {
                let file = rest.strip_prefix("//").unwrap_or(rest);
                if file.is_empty() {
                    bail!("the URL names no file; write sqlite:FILE");
                }
                Ok(Self::Sqlite(file.into()))
            }
            "postgres" | "postgresql" if rest.starts_with("//") => Ok(Self::Postgres(url.to_owned())),
            "mongodb" | "mongodb+srv" if rest.starts_with("//") => Ok(Self::MongoDb(url.to_owned())),
            "mysql" | "mariadb" => {
                bail!("MySQL and MariaDB are not supported yet; use SQLite, PostgreSQL or MongoDB")
            }
            _ if url.ends_with(".db") && !url.contains("://") => Ok(Self::Sqlite(url.into())),
            scheme => {
                let found = if url.contains("://") { format!(", not {scheme}://") } else { String::new() };
                bail!(
                    "the URL does not say which store; it is sqlite:FILE, a file ending in .db, postgres://… or \
                     mongodb://…{found}"
                )
            }
        }
    }

    /// The name of the cargo feature that builds the driver in.
    const fn feature(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::MongoDb(_) => "mongodb",
        }
    }

    /// The error for a store whose driver is not built in.
    #[allow(dead_code, reason = "not with every driver built in")]
    pub(crate) fn not_built_in(&self) -> Error {
        let feature = self.feature();
        anyhow!(
            "this `ratchet` was built without the driver for {feature}; build it with \
             `cargo install --path ratchet-cli --features {feature}`"
        )
    }
}

/// Shows the location without user, password and options.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => fmt::Display::fmt(&file.display(), f),
            Self::Postgres(url) | Self::MongoDb(url) => f.write_str(&without_secrets(url)),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Scheme, host and path of a URL. The last `@` ends the password, which may contain `@`, `/` or `?`; hosts have no
/// `@`.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let place = place.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_decides_the_store() {
        let file = |name: &str| Location::Sqlite(name.into());
        for (url, location) in [
            ("sqlite:jobs.db", file("jobs.db")),
            ("sqlite:///var/lib/jobs", file("/var/lib/jobs")),
            ("sqlite://jobs", file("jobs")),
            ("./some/jobs.db", file("./some/jobs.db")),
            ("postgres://db/app", Location::Postgres("postgres://db/app".into())),
            ("postgresql://db/app", Location::Postgres("postgresql://db/app".into())),
            ("mongodb+srv://db", Location::MongoDb("mongodb+srv://db".into())),
        ] {
            assert_eq!(Location::parse(url).unwrap(), location, "{url}");
        }
    }

    #[test]
    fn what_is_no_store_is_refused_without_repeating_the_password() {
        for (url, said) in [
            ("mysql://me:s3cret@db/app", "not supported yet"),
            ("redis://me:s3cret@db/app", "not redis://"),
            ("redis://me:s3cret@db/app.db", "not redis://"),
            ("s3cret", "does not say which store"),
            ("postgres:s3cret", "does not say which store"),
            ("sqlite:", "names no file"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("s3cret"), "{url}: {error}");
        }
    }

    #[test]
    fn a_place_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("postgres://me:s3cret@db:5432/app?sslpassword=s3cret", "postgres://db:5432/app"),
            ("postgres://me:s3@cr/et?@db/app", "postgres://db/app"),
            ("mongodb://a:1,b:2/?replicaSet=rs0", "mongodb://a:1,b:2/"),
            ("postgres://?password=s3cret", "postgres://"),
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!((location.to_string(), format!("{location:?}")), (shown.to_owned(), shown.to_owned()));
        }
    }
}
