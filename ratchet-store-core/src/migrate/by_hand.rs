//! The scripts as one text, for people who apply them with a tool of their own.

use super::{Scripts, versions};
use crate::{Dialect, Namespace, TextError, params};

impl Scripts {
    /// Returns all scripts in order, for one namespace, each with the statement that records it with its checksum. The
    /// migrator and the stores recognize a schema that was made with this text.
    ///
    /// # Errors
    /// If a script cannot be used in this namespace.
    pub fn by_hand(&self, dialect: Dialect, namespace: &Namespace) -> Result<String, TextError> {
        let texts = versions::texts(dialect);
        let schema = namespace.schema_name().and(texts.schema);
        let first: Vec<&'static str> = schema.into_iter().chain([texts.table]).collect();
        params::by_hand(&first, self.iter(), texts.record, dialect, namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_for_other_tools_has_every_script_and_its_record_in_the_namespace() {
        let scripts = Scripts::new(&[
            ("V2__add_b.sql", "ALTER TABLE ratchet.a ADD b int"),
            ("V1__a.sql", "CREATE TABLE ratchet.a (x int);\n"),
        ]);
        let text = scripts.unwrap().by_hand(Dialect::Postgres, &Namespace::schema("app").unwrap()).unwrap();
        let find = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
        let order = [
            "CREATE SCHEMA IF NOT EXISTS \"app\";\n",
            "CREATE TABLE IF NOT EXISTS \"app\".\"ratchet_schema_version\" (",
            "-- 001 a\nCREATE TABLE \"app\".\"a\" (x int);\n",
            "VALUES ('001', date_trunc('milliseconds', clock_timestamp()), 'a', '",
            "-- 002 add b\nALTER TABLE \"app\".\"a\" ADD b int;\n",
            "VALUES ('002', date_trunc('milliseconds', clock_timestamp()), 'add b', '",
        ];
        assert!(order.map(find).is_sorted(), "{text}");
    }

    #[test]
    fn a_namespace_that_is_no_schema_needs_none() {
        let text =
            Scripts::new(&[]).unwrap().by_hand(Dialect::MySql, &Namespace::prefix("app_").unwrap()).unwrap();
        assert!(text.starts_with("CREATE TABLE IF NOT EXISTS `app_ratchet_schema_version` ("), "{text}");
    }
}
