//! The schema that holds the tables: its name, and making and dropping it.

use std::fmt;

use ratchet_api::{StoreError, StoreResult};

use crate::PostgresStore;
use crate::params::compile;

/// The clean install.
const INSTALL: &str = include_str!("../../ddl/postgresql/postgresql-schema.sql");

/// The name of the PostgreSQL schema that holds the tables.
///
/// Several applications can share one database, each with a schema of its own. The name goes into the text of
/// every statement once, when a store is opened, so it is checked here and nowhere else.
///
/// ```
/// use ratchet_store_postgres::Schema;
///
/// assert_eq!(Schema::default().as_str(), "ratchet");
/// assert!(Schema::new("billing_jobs").is_ok());
/// assert!(Schema::new("jobs; DROP TABLE users").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema(String);

impl Schema {
    /// PostgreSQL cuts longer names off, and two cut names could become one.
    pub const MAX_LEN: usize = 63;

    /// Takes a name of ASCII letters, digits and underscores that does not begin with a digit.
    pub fn new(name: impl Into<String>) -> StoreResult<Self> {
        let name = name.into();
        let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        let only_words = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if starts_well && only_words && name.len() <= Self::MAX_LEN {
            Ok(Self(name))
        } else {
            let rule = "takes 1 to 63 ASCII letters, digits and underscores, and no digit first";
            Err(StoreError::invalid("connect", format!("schema name {name:?}: {rule}")))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self("ratchet".to_owned())
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PostgresStore {
    /// Creates the schema and its tables; an error if the schema exists.
    pub async fn create_schema(&self) -> StoreResult<()> {
        let install = compile(INSTALL, &self.schema).0;
        self.transaction("create_schema", |session| Box::pin(session.raw(install.clone()))).await
    }

    /// Drops the schema with everything in it.
    pub async fn drop_schema(&self) -> StoreResult<()> {
        let drop = compile("DROP SCHEMA ratchet CASCADE", &self.schema).0;
        self.transaction("drop_schema", |session| Box::pin(session.raw(drop.clone()))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_become_part_of_a_statement() {
        for name in ["", "1a", "a-b", "a.b", "a\"b", "a b", "ä", &"a".repeat(64)] {
            assert!(Schema::new(name).is_err(), "{name:?}");
        }
        assert!(Schema::new("A_1").is_ok());
    }

    #[test]
    fn every_table_of_the_install_is_qualified() {
        let (text, params) = compile(INSTALL, &Schema::new("other").unwrap());
        let text = text.as_str();
        assert!(params.is_empty(), "{params:?}");
        assert!(text.contains("CREATE SCHEMA \"other\";"));
        assert!(text.contains("CREATE TABLE \"other\".scheduler_job ("));
        assert!(!text.contains(" ratchet."));
    }
}
