//! The rare columns, in which most jobs have nothing, as one JSON object.

use ratchet_api::Timestamp;
use ratchet_store_core::driver::{Problem, Row};
use serde::de::{Deserialize, DeserializeOwned};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A row that came as an object. Instants are milliseconds, ids are text.
pub(crate) struct RareCells(Map<String, Value>);

impl RareCells {
    pub(crate) fn read(object: &str) -> Result<Self, Problem> {
        Ok(Self(serde_json::from_str(object)?))
    }

    fn value(&self, column: &str) -> Result<&Value, Problem> {
        self.0.get(column).ok_or_else(|| "no such column".into())
    }

    fn cell<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, Problem> {
        Ok(Option::deserialize(self.value(column)?)?)
    }
}

impl Row for RareCells {
    fn flag(&self, column: &str) -> Result<Option<bool>, Problem> {
        self.cell(column)
    }

    fn int(&self, column: &str) -> Result<Option<i64>, Problem> {
        self.cell(column)
    }

    fn text(&self, column: &str) -> Result<Option<&str>, Problem> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            other => Err(format!("{other} where text belongs").into()),
        }
    }

    fn id(&self, column: &str) -> Result<Option<Uuid>, Problem> {
        self.cell(column)
    }

    fn time(&self, column: &str) -> Result<Option<Timestamp>, Problem> {
        Ok(self.int(column)?.map(Timestamp::from_millis))
    }

    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, Problem> {
        self.cell(column)
    }

    fn ints(&self, column: &str) -> Result<Option<Vec<i64>>, Problem> {
        self.cell(column)
    }

    fn ids(&self, column: &str) -> Result<Option<Vec<Uuid>>, Problem> {
        self.cell(column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_by_name_and_others_are_problems() {
        let object = r#"{"n": 1700000000123, "text": "{\"a\": 1.0}", "nothing": null, "tags": ["x"]}"#;
        let cells = RareCells::read(object).expect("an object");
        assert_eq!(cells.time("n").ok(), Some(Some(Timestamp::from_millis(1_700_000_000_123))));
        assert_eq!(cells.text("text").ok(), Some(Some(r#"{"a": 1.0}"#)));
        assert_eq!(cells.id("nothing").ok(), Some(None));
        assert_eq!(cells.texts("tags").ok(), Some(Some(vec!["x".to_owned()])));
        assert!(cells.int("text").is_err());
        assert!(cells.text("missing").is_err());
    }
}
