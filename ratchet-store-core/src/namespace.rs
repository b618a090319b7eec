//! The location of the tables: a schema, or a prefix of their names.

use std::fmt;

use ratchet_api::StoreError;

use crate::Dialect;

/// The schema or prefix that keeps the tables of one application apart from all others in a database.
///
/// Statement text is written for the schema `ratchet` (`ratchet.scheduler_job`), so that it can be pasted into a
/// client. A namespace replaces that schema once, when a store is opened. It becomes part of statement text, so its
/// name is checked here and nowhere else.
///
/// ```
/// use ratchet_store_core::Namespace;
///
/// assert_eq!(Namespace::schema("billing")?.to_string(), "schema billing");
/// assert_eq!(Namespace::prefix("billing_")?.to_string(), "prefix billing_");
/// assert_eq!(Namespace::bare().to_string(), "the database");
/// assert!(Namespace::schema("jobs; DROP TABLE users").is_err());
/// # Ok::<_, ratchet_store_core::InvalidNamespace>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Schema(Box<str>),
    Prefix(Box<str>),
    Bare,
}

/// The error for a name that cannot become part of a statement.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "namespace {name:?} is not usable: take 1 to {max} ASCII letters, digits and underscores, and no digit first"
)]
pub struct InvalidNamespace {
    name: String,
    max: usize,
}

ratchet_api::debug_as_display!(InvalidNamespace);

impl Namespace {
    /// The longest schema name: PostgreSQL truncates longer ones, and two truncated names could become one.
    pub const MAX_SCHEMA: usize = 63;
    /// The longest prefix: it leaves the names behind it room below the same limit.
    pub const MAX_PREFIX: usize = 24;

    /// Uses a schema of PostgreSQL, or a database of MySQL, which is the same thing there.
    pub fn schema(name: impl Into<String>) -> Result<Self, InvalidNamespace> {
        checked(name.into(), Self::MAX_SCHEMA).map(|name| Self(Kind::Schema(name)))
    }

    /// Uses a prefix of every table's name, in the current database of the connection.
    pub fn prefix(prefix: impl Into<String>) -> Result<Self, InvalidNamespace> {
        checked(prefix.into(), Self::MAX_PREFIX).map(|prefix| Self(Kind::Prefix(prefix)))
    }

    /// Uses plain table names: the right choice for a SQLite file of one application.
    #[must_use]
    pub const fn bare() -> Self {
        Self(Kind::Bare)
    }

    /// The schema, unless the tables are in the connection's current one.
    pub fn schema_name(&self) -> Option<&str> {
        match &self.0 {
            Kind::Schema(name) => Some(name),
            Kind::Prefix(_) | Kind::Bare => None,
        }
    }

    /// The name of a table as the database's catalogue has it.
    pub fn table(&self, name: &str) -> String {
        match &self.0 {
            Kind::Prefix(prefix) => format!("{prefix}{name}"),
            Kind::Schema(_) | Kind::Bare => name.to_owned(),
        }
    }

    /// A table's name as a statement writes it. The rule for names leaves nothing to escape inside the quotes.
    pub(crate) fn qualify(&self, dialect: Dialect, name: &str) -> String {
        let table = quoted(dialect, &self.table(name));
        match self.schema_name() {
            Some(schema) => format!("{}.{table}", quoted(dialect, schema)),
            None => table,
        }
    }

    /// The schema's name as a statement writes it.
    pub(crate) fn quoted_schema(&self, dialect: Dialect) -> Option<String> {
        self.schema_name().map(|name| quoted(dialect, name))
    }
}

impl Default for Namespace {
    /// The schema `ratchet`.
    fn default() -> Self {
        Self(Kind::Schema("ratchet".into()))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Schema(name) => write!(f, "schema {name}"),
            Kind::Prefix(prefix) => write!(f, "prefix {prefix}"),
            Kind::Bare => f.write_str("the database"),
        }
    }
}

impl From<InvalidNamespace> for StoreError {
    fn from(error: InvalidNamespace) -> Self {
        Self::invalid("connect", error.to_string())
    }
}

fn quoted(dialect: Dialect, name: &str) -> String {
    let quote = dialect.name_quote();
    format!("{quote}{name}{quote}")
}

/// Accepts `^[A-Za-z_][A-Za-z0-9_]*$` up to the maximum length.
fn checked(name: String, max: usize) -> Result<Box<str>, InvalidNamespace> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let only_words = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if starts_well && only_words && name.len() <= max {
        Ok(name.into())
    } else {
        Err(InvalidNamespace { name, max })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_plain_names_become_part_of_a_statement() {
        for name in ["", "1a", "a-b", "a.b", "a\"b", "a`b", "a b", "a;b", "a\0", "a\n", "ä", &"a".repeat(64)]
        {
            assert!(Namespace::schema(name).is_err(), "{name:?}");
            assert!(Namespace::prefix(name).is_err(), "{name:?}");
        }
        for name in ["a", "_", "A_1", "select", &"a".repeat(63)] {
            assert!(Namespace::schema(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_prefix_leaves_room_for_the_names_behind_it() {
        assert!(Namespace::prefix("a".repeat(24)).is_ok());
        assert!(Namespace::prefix("a".repeat(25)).is_err());
    }

    #[test]
    fn an_error_says_what_is_allowed() {
        let error = Namespace::schema("a-b").unwrap_err();
        let text = "namespace \"a-b\" is not usable: take 1 to 63 ASCII letters, digits and underscores, and no digit first";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_table_is_named_as_each_dialect_quotes() {
        let schema = Namespace::schema("Order").unwrap();
        let prefix = Namespace::prefix("app_").unwrap();
        for (dialect, namespace, name) in [
            (Dialect::Postgres, &schema, r#""Order"."t""#),
            (Dialect::MySql, &schema, "`Order`.`t`"),
            (Dialect::Sqlite, &schema, r#""Order"."t""#),
            (Dialect::Postgres, &prefix, r#""app_t""#),
            (Dialect::MySql, &prefix, "`app_t`"),
            (Dialect::Sqlite, &Namespace::bare(), r#""t""#),
        ] {
            assert_eq!(namespace.qualify(dialect, "t"), name);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_has_the_form_of_the_rule(name in "\\PC{0,70}") {
            let form = name.len() <= 63
                && name.chars().enumerate().all(|(at, c)| c == '_' || c.is_ascii_alphabetic() || at > 0 && c.is_ascii_digit())
                && !name.is_empty();
            prop_assert_eq!(Namespace::schema(name).is_ok(), form);
        }
    }
}
