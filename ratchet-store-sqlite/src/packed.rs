//! Results with many rows, packed into one cell.
//!
//! The driver's thread hands over every row separately, and copies every cell of it: for five hundred jobs that costs
//! as much as finding them. The scripts that carry the load therefore return the `names` of their columns, separated by
//! blanks, and all `rows` as one JSON array of arrays. A row that ends early ends with nulls: it has nothing in its
//! rare columns.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::str::Utf8Chunk;
use std::sync::Arc;

use ratchet_api::Timestamp;
use ratchet_store_core::driver::{Problem, Rare, Row};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Visitor};
use uuid::Uuid;

use crate::driver::flag;

/// The positions of columns by their names.
type Places = HashMap<String, usize>;

/// A row of a packed result.
pub(crate) struct PackedRow {
    places: Arc<Places>,
    cells: Vec<Cell>,
}

/// A cell as JSON has it: an id is text.
enum Cell {
    Null,
    Int(i64),
    Text(String),
    /// A value that no column holds, unless it was written by hand.
    Damaged,
}

/// Stands for bytes that are not UTF-8, in a result that has some: Unicode defines it as a noncharacter.
const NOT_UTF8: char = '\u{10ffff}';

/// Unpacks a result.
pub(crate) fn unpack(names: &str, rows: &[u8]) -> Result<Vec<PackedRow>, serde_json::Error> {
    let rows: Vec<Vec<Cell>> = match std::str::from_utf8(rows) {
        Ok(rows) => serde_json::from_str(rows)?,
        // SQLite stores any bytes as text; those that are not UTF-8 damage their own cell.
        Err(_) => {
            let marked: String = rows.utf8_chunks().map(|chunk| marked(&chunk)).collect();
            let mut rows: Vec<Vec<Cell>> = serde_json::from_str(&marked)?;
            rows.iter_mut().flatten().for_each(Cell::tell_damage);
            rows
        }
    };
    let places = names.split_whitespace().enumerate().map(|(place, name)| (name.to_owned(), place));
    let places = Arc::new(places.collect::<Places>());
    Ok(rows.into_iter().map(|cells| PackedRow { places: Arc::clone(&places), cells }).collect())
}

fn marked<'t>(chunk: &Utf8Chunk<'t>) -> Cow<'t, str> {
    match chunk.invalid() {
        [] => Cow::Borrowed(chunk.valid()),
        _ => Cow::Owned(format!("{}{NOT_UTF8}", chunk.valid())),
    }
}

impl Cell {
    fn tell_damage(&mut self) {
        if matches!(self, Self::Text(text) if text.contains(NOT_UTF8)) {
            *self = Self::Damaged;
        }
    }
}

impl PackedRow {
    fn cell(&self, column: &str) -> Result<&Cell, Problem> {
        let place = self.places.get(column).ok_or_else(|| format!("{column}: no such column"))?;
        Ok(self.cells.get(*place).unwrap_or(&Cell::Null))
    }

    fn json<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, Problem> {
        Ok(self.text(column)?.map(serde_json::from_str).transpose()?)
    }
}

impl Row for PackedRow {
    fn flag(&self, column: &str) -> Result<Option<bool>, Problem> {
        flag(column, self.int(column)?)
    }

    fn int(&self, column: &str) -> Result<Option<i64>, Problem> {
        match self.cell(column)? {
            Cell::Null => Ok(None),
            Cell::Int(int) => Ok(Some(*int)),
            Cell::Text(_) | Cell::Damaged => Err("no number where one belongs".into()),
        }
    }

    fn text(&self, column: &str) -> Result<Option<&str>, Problem> {
        match self.cell(column)? {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            Cell::Int(_) | Cell::Damaged => Err("no text where it belongs".into()),
        }
    }

    fn id(&self, column: &str) -> Result<Option<Uuid>, Problem> {
        Ok(self.text(column)?.map(Uuid::try_parse).transpose()?)
    }

    fn time(&self, column: &str) -> Result<Option<Timestamp>, Problem> {
        Ok(self.int(column)?.map(Timestamp::from_millis))
    }

    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, Problem> {
        self.json(column)
    }

    fn ints(&self, column: &str) -> Result<Option<Vec<i64>>, Problem> {
        self.json(column)
    }

    fn ids(&self, column: &str) -> Result<Option<Vec<Uuid>>, Problem> {
        self.json(column)
    }

    fn rare(&self) -> Result<Rare, Problem> {
        Ok(if self.cells.len() < self.places.len() { Rare::Nowhere } else { Rare::Here })
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl Visitor<'_> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, a whole number or text")
    }

    fn visit_unit<E>(self) -> Result<Cell, E> {
        Ok(Cell::Null)
    }

    fn visit_i64<E>(self, int: i64) -> Result<Cell, E> {
        Ok(Cell::Int(int))
    }

    fn visit_u64<E>(self, int: u64) -> Result<Cell, E> {
        Ok(i64::try_from(int).map_or(Cell::Damaged, Cell::Int))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Cell, E> {
        Ok(Cell::Damaged)
    }

    fn visit_str<E>(self, text: &str) -> Result<Cell, E> {
        Ok(Cell::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Cell, E> {
        Ok(Cell::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_the_names_of_their_columns() {
        let id = Uuid::from_u128(0xab);
        let json = r#"[["000000000000000000000000000000AB",1,-5,"a\u0000\"b\"","[\"x\"]"],[null,0]]"#;
        let rows = unpack("job_id held\n     n text tags", json.as_bytes()).expect("an answer");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].id("job_id").ok(), Some(Some(id)));
        assert_eq!(rows[0].flag("held").ok(), Some(Some(true)));
        assert_eq!(rows[0].int("n").ok(), Some(Some(-5)));
        assert_eq!(rows[0].text("text").ok(), Some(Some("a\0\"b\"")));
        assert_eq!(rows[0].texts("tags").ok(), Some(Some(vec!["x".to_owned()])));
        assert_eq!(rows[1].id("job_id").ok(), Some(None));
        assert_eq!(rows[1].time("n").ok(), Some(None));
    }

    #[test]
    fn a_cell_of_another_type_and_one_that_is_not_there_are_problems() {
        let rows = unpack("a b", br#"[["x",2]]"#).expect("an answer");
        assert!(rows[0].int("a").is_err());
        assert!(rows[0].text("b").is_err());
        assert!(rows[0].flag("b").is_err());
        assert!(rows[0].id("a").is_err());
        assert!(rows[0].text("c").is_err());
    }

    #[test]
    fn bytes_that_are_no_utf8_damage_their_own_cell() {
        let rows = unpack("a b", b"[[\"x\xffy\",\"good\"],[\"\xf4\x8f\xbf\xbe\",1e30]]").expect("an answer");
        assert!(rows[0].text("a").is_err());
        assert_eq!(rows[0].text("b").ok(), Some(Some("good")));
        assert_eq!(rows[1].text("a").ok(), Some(Some("\u{10fffe}")));
        assert!(rows[1].int("b").is_err());
    }
}
