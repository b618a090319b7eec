use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, millis, mins, secs};

/// Migrations at start, for stores on a database server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaOptions {
    /// Whether pending migrations are applied before the first claim. Default false: the start then fails with
    /// a message that names the command to run.
    pub auto_migrate: bool,
    /// How long to wait for another node that is migrating. Default 30 s.
    pub migration_lock_wait: Duration,
    /// How long one statement of a migration may wait for a table. Default 3 s, then it is tried again: all
    /// other statements queue up behind a waiting one.
    pub table_lock_wait: Duration,
}

impl SchemaOptions {
    /// Checks ranges.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("schema");
        rules.within("migration_lock_wait", self.migration_lock_wait, secs(1), mins(60));
        rules.within("table_lock_wait", self.table_lock_wait, millis(100), mins(5));
        rules.verdict()
    }
}

impl Default for SchemaOptions {
    fn default() -> Self {
        Self { auto_migrate: false, migration_lock_wait: secs(30), table_lock_wait: secs(3) }
    }
}
