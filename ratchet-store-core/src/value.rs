//! Values that are bound to statements, in a form that does not depend on the driver.
//!
//! A statement takes many jobs by arrays, one for each column, so that its text is the same for any number.
//! PostgreSQL has arrays. Elsewhere an array is bound as JSON text, and several arrays of one length as one text of
//! rows, which is what `:[job_ids, fences]` in a statement asks for.

use std::fmt::Write as _;

use ratchet_api::{JobId, StoreError, StoreErrorKind, StoreResult, Timestamp};
use uuid::Uuid;

use crate::params::Bind;
use crate::{Dialect, Statement};

/// A value, or an array of them. `None` is null.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'v> {
    /// A boolean.
    Flag(Option<bool>),
    /// A whole number.
    Int(Option<i64>),
    /// Text.
    Text(Option<&'v str>),
    /// Bytes.
    Bytes(Option<&'v [u8]>),
    /// An id.
    Id(Option<Uuid>),
    /// An instant.
    Time(Option<Timestamp>),
    /// Several booleans.
    Flags(Vec<Option<bool>>),
    /// Several numbers.
    Ints(Vec<Option<i64>>),
    /// Several texts.
    Texts(Vec<Option<&'v str>>),
    /// Several strings of bytes.
    ByteStrings(Vec<Option<&'v [u8]>>),
    /// Several ids.
    Ids(Vec<Option<Uuid>>),
    /// Several instants.
    Times(Vec<Option<Timestamp>>),
    /// An array or rows of arrays, where the database has none.
    Json(String),
}

/// A type that can be bound.
pub(crate) trait IntoValue<'v> {
    fn into_value(self) -> Value<'v>;
}

/// Implements the conversion for each type: itself, if it may be absent, several of it, several that may be absent.
macro_rules! values {
    ($($type:ty => $one:ident, $many:ident, $convert:expr;)*) => {$(
        impl<'v> IntoValue<'v> for $type {
            fn into_value(self) -> Value<'v> { Some(self).into_value() }
        }
        impl<'v> IntoValue<'v> for Option<$type> {
            fn into_value(self) -> Value<'v> { Value::$one(self.map($convert)) }
        }
        impl<'v> IntoValue<'v> for &[$type] {
            fn into_value(self) -> Value<'v> { Value::$many(self.iter().copied().map($convert).map(Some).collect()) }
        }
        impl<'v> IntoValue<'v> for &[Option<$type>] {
            fn into_value(self) -> Value<'v> { Value::$many(self.iter().map(|value| value.map($convert)).collect()) }
        }
        impl<'v> IntoValue<'v> for Vec<$type> {
            fn into_value(self) -> Value<'v> { self.as_slice().into_value() }
        }
        impl<'v> IntoValue<'v> for &Vec<$type> {
            fn into_value(self) -> Value<'v> { self.as_slice().into_value() }
        }
        impl<'v> IntoValue<'v> for Vec<Option<$type>> {
            fn into_value(self) -> Value<'v> { self.as_slice().into_value() }
        }
        impl<'v> IntoValue<'v> for &Vec<Option<$type>> {
            fn into_value(self) -> Value<'v> { self.as_slice().into_value() }
        }
    )*};
}

values! {
    bool => Flag, Flags, |flag| flag;
    i64 => Int, Ints, |number| number;
    u32 => Int, Ints, i64::from;
    i32 => Int, Ints, i64::from;
    i16 => Int, Ints, i64::from;
    &'v str => Text, Texts, |text| text;
    &'v [u8] => Bytes, ByteStrings, |bytes| bytes;
    JobId => Id, Ids, JobId::as_uuid;
    Timestamp => Time, Times, |time| time;
}

impl<'v> IntoValue<'v> for &'v String {
    fn into_value(self) -> Value<'v> {
        self.as_str().into_value()
    }
}

impl<'v> IntoValue<'v> for &'v Vec<String> {
    fn into_value(self) -> Value<'v> {
        Value::Texts(self.iter().map(|text| Some(text.as_str())).collect())
    }
}

/// Values by name.
#[derive(Debug, Default)]
pub(crate) struct Values<'v>(Vec<(&'static str, Value<'v>)>);

impl<'v> Values<'v> {
    pub(crate) fn push(&mut self, name: &'static str, value: Value<'v>) {
        self.0.push((name, value));
    }

    /// The values that a statement binds, in its order.
    pub(crate) fn bound(&self, statement: &Statement, dialect: Dialect) -> StoreResult<Vec<Value<'v>>> {
        let bind = |bind: &Bind| match bind {
            Bind::One(name) => Ok(match (self.get(name)?, dialect) {
                (value, Dialect::Postgres) => value.clone(),
                (value, Dialect::MySql | Dialect::Sqlite) => value.clone().without_array(),
            }),
            Bind::Rows(names) => {
                let columns: StoreResult<Vec<_>> = names.iter().map(|name| self.get(name)).collect();
                Ok(Value::Json(rows(&columns?)))
            }
        };
        statement.binds().iter().map(bind).collect()
    }

    fn get(&self, name: &str) -> StoreResult<&Value<'v>> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value).ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Other,
                "bind",
                format!("a statement asks for {name}, which it is not given"),
            )
        })
    }
}

impl Value<'_> {
    /// Converts an array to JSON.
    fn without_array(self) -> Self {
        let Some(length) = self.len() else { return self };
        let mut json = String::from("[");
        for place in 0..length {
            separate(&mut json, place);
            self.write_cell(place, &mut json);
        }
        json.push(']');
        Self::Json(json)
    }

    /// The number of elements, if this is an array.
    fn len(&self) -> Option<usize> {
        match self {
            Self::Flags(values) => Some(values.len()),
            Self::Ints(values) => Some(values.len()),
            Self::Texts(values) => Some(values.len()),
            Self::ByteStrings(values) => Some(values.len()),
            Self::Ids(values) => Some(values.len()),
            Self::Times(values) => Some(values.len()),
            _ => None,
        }
    }

    /// Writes one element. JSON has neither bytes nor ids, which become hexadecimal, nor instants: milliseconds.
    fn write_cell(&self, place: usize, json: &mut String) {
        let written = match self {
            Self::Flags(values) => write_json(json, values[place].map(u8::from)),
            Self::Ints(values) => write_json(json, values[place]),
            Self::Texts(values) => write_text(json, values[place]),
            Self::ByteStrings(values) => write_hex(json, values[place]),
            Self::Ids(values) => write_id(json, values[place]),
            Self::Times(values) => write_json(json, values[place].map(Timestamp::as_millis)),
            _ => Ok(()),
        };
        written.expect("a string takes everything");
    }
}

/// Columns as rows. A column that is shorter than the first is a mistake of the caller.
fn rows(columns: &[&Value<'_>]) -> String {
    let length = columns.first().and_then(|column| column.len()).unwrap_or_default();
    debug_assert!(columns.iter().all(|column| column.len() == Some(length)), "columns of different lengths");
    let mut json = String::from("[");
    for place in 0..length {
        separate(&mut json, place);
        for (at, column) in columns.iter().enumerate() {
            json.push(if at == 0 { '[' } else { ',' });
            column.write_cell(place, &mut json);
        }
        json.push(']');
    }
    json.push(']');
    json
}

fn separate(json: &mut String, place: usize) {
    if place > 0 {
        json.push(',');
    }
}

fn write_json(json: &mut String, value: Option<impl std::fmt::Display>) -> std::fmt::Result {
    match value {
        Some(value) => write!(json, "{value}"),
        None => json.write_str("null"),
    }
}

fn write_text(json: &mut String, text: Option<&str>) -> std::fmt::Result {
    let Some(text) = text else { return json.write_str("null") };
    if text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        return json.write_str(&serde_json::to_string(text).map_err(|_| std::fmt::Error)?);
    }
    write_quoted(json, text)
}

fn write_id(json: &mut String, id: Option<Uuid>) -> std::fmt::Result {
    let Some(id) = id else { return json.write_str("null") };
    write_quoted(json, id.simple().encode_lower(&mut Uuid::encode_buffer()))
}

/// Writes text that needs no escaping.
fn write_quoted(json: &mut String, text: &str) -> std::fmt::Result {
    json.push('"');
    json.push_str(text);
    json.push('"');
    Ok(())
}

fn write_hex(json: &mut String, bytes: Option<&[u8]>) -> std::fmt::Result {
    let Some(bytes) = bytes else { return json.write_str("null") };
    json.push('"');
    for byte in bytes {
        write!(json, "{byte:02x}")?;
    }
    json.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;

    fn bound(text: &'static str, dialect: Dialect, values: &Values<'_>) -> Vec<Value<'static>> {
        let statement = Statement::compile(text, dialect, &Namespace::bare()).expect("the text is right");
        let json = |value| match value {
            Value::Json(json) => Value::Json(json),
            Value::Ints(ints) => Value::Ints(ints),
            Value::Int(int) => Value::Int(int),
            other => panic!("not expected here: {other:?}"),
        };
        values.bound(&statement, dialect).expect("every value is given").into_iter().map(json).collect()
    }

    fn some_of_each() -> Values<'static> {
        let mut values = Values::default();
        values.push("ids", vec![JobId::from_uuid(Uuid::from_u128(0xab)); 2].into_value());
        values.push("numbers", vec![Some(-1_i64), None].into_value());
        values.push("texts", vec!["a\"\n", "é"].into_value());
        values.push("bytes", vec![Some([0_u8, 255].as_slice()), None].into_value());
        values.push("flags", vec![true, false].into_value());
        values.push("times", vec![Some(Timestamp::from_millis(7)), None].into_value());
        values.push("limit", 5_i64.into_value());
        values
    }

    #[test]
    fn arrays_of_one_length_become_rows_in_the_order_of_the_text() {
        let text = "SELECT json_each(:[ids, numbers, texts, bytes, flags, times]), :limit";
        let id = "\"000000000000000000000000000000ab\"";
        let rows = format!(r#"[[{id},-1,"a\"\n","00ff",1,7],[{id},null,"é",null,0,null]]"#);
        assert_eq!(bound(text, Dialect::Sqlite, &some_of_each()), [Value::Json(rows), Value::Int(Some(5))]);
    }

    #[test]
    fn an_array_alone_is_json_except_where_the_database_has_arrays() {
        let values = some_of_each();
        let json = [Value::Json("[-1,null]".to_owned())];
        assert_eq!(bound("SELECT :numbers", Dialect::Sqlite, &values), json);
        assert_eq!(bound("SELECT :numbers", Dialect::MySql, &values), json);
        assert_eq!(bound("SELECT :numbers", Dialect::Postgres, &values), [Value::Ints(vec![Some(-1), None])]);
    }

    #[test]
    fn a_value_that_is_not_given_is_an_error_that_names_it() {
        let statement = Statement::compile("SELECT :nobody", Dialect::Sqlite, &Namespace::bare()).unwrap();
        let error = some_of_each().bound(&statement, Dialect::Sqlite).unwrap_err();
        assert!(error.to_string().contains("nobody"), "{error}");
    }
}
