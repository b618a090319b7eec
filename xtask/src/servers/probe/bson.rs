//! Just enough BSON for four MongoDB commands: a writer, and a reader of top-level fields.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::{take, take_cstr};

/// A document under construction; fields keep their order, which commands depend on.
#[derive(Debug, Default, Clone)]
pub(crate) struct Document {
    fields: Vec<u8>,
}

impl Document {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        let length = u32::try_from(value.len() + 1).unwrap_or(u32::MAX);
        self.field(0x02, name, &[&length.to_le_bytes()[..], value.as_bytes(), &[0]].concat())
    }

    pub(crate) fn int(self, name: &str, value: i32) -> Self {
        self.field(0x10, name, &value.to_le_bytes())
    }

    pub(crate) fn bool(self, name: &str, value: bool) -> Self {
        self.field(0x08, name, &[u8::from(value)])
    }

    pub(crate) fn document(self, name: &str, value: &Self) -> Self {
        self.field(0x03, name, &value.to_bytes())
    }

    pub(crate) fn array(self, name: &str, items: &[Self]) -> Self {
        let items = items
            .iter()
            .enumerate()
            .fold(Self::new(), |array, (n, item)| array.document(&n.to_string(), item));
        self.field(0x04, name, &items.to_bytes())
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.fields.len() + 5).unwrap_or(u32::MAX);
        [&length.to_le_bytes()[..], &self.fields, &[0]].concat()
    }

    fn field(mut self, kind: u8, name: &str, value: &[u8]) -> Self {
        self.fields.push(kind);
        self.fields.extend(name.as_bytes());
        self.fields.push(0);
        self.fields.extend(value);
        self
    }
}

/// A value that was read; kinds that no command here looks at are `Other`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(f64),
    Bool(bool),
    Other,
}

/// The top-level fields of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reply(BTreeMap<String, Value>);

impl Reply {
    pub(crate) fn parse(mut bytes: &[u8]) -> Result<Self> {
        take(&mut bytes, 4)?;
        let mut fields = BTreeMap::new();
        loop {
            let kind = take(&mut bytes, 1)?[0];
            if kind == 0 {
                return Ok(Self(fields));
            }
            let name = take_cstr(&mut bytes)?;
            let value = read_value(kind, &mut bytes).with_context(|| format!("field `{name}`"))?;
            fields.insert(name, value);
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }
}

fn read_value(kind: u8, bytes: &mut &[u8]) -> Result<Value> {
    Ok(match kind {
        0x01 => Value::Number(f64::from_le_bytes(take(bytes, 8)?.try_into()?)),
        0x02 => {
            let length = length(bytes)?;
            let text = take(bytes, length)?;
            Value::Text(String::from_utf8_lossy(text.strip_suffix(b"\0").unwrap_or(text)).into())
        }
        0x03 | 0x04 => {
            let length = length(bytes)?;
            take(bytes, length.checked_sub(4).context("a document is too short")?)?;
            Value::Other
        }
        0x05 => {
            let length = length(bytes)?;
            take(bytes, length + 1)?;
            Value::Other
        }
        0x07 => skip(bytes, 12)?,
        0x08 => Value::Bool(take(bytes, 1)?[0] != 0),
        0x0a => Value::Other,
        0x10 => Value::Number(f64::from(i32::from_le_bytes(take(bytes, 4)?.try_into()?))),
        0x09 | 0x11 | 0x12 => skip(bytes, 8)?,
        0x13 => skip(bytes, 16)?,
        other => bail!("a value of kind {other:#x} was not expected"),
    })
}

fn skip(bytes: &mut &[u8], n: usize) -> Result<Value> {
    take(bytes, n)?;
    Ok(Value::Other)
}

fn length(bytes: &mut &[u8]) -> Result<usize> {
    Ok(u32::from_le_bytes(take(bytes, 4)?.try_into()?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specifications_example_is_written_byte_for_byte() {
        let bytes = Document::new().text("hello", "world").to_bytes();
        assert_eq!(bytes, b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let inner = Document::new().int("n", 1);
        let bytes = Document::new()
            .int("one", -1)
            .document("inner", &inner)
            .array("list", &[inner.clone(), inner])
            .bool("yes", true)
            .bool("no", false)
            .text("text", "grün")
            .to_bytes();
        let reply = Reply::parse(&bytes).unwrap();
        assert_eq!(reply.number("one"), Some(-1.0));
        assert_eq!(reply.text("text"), Some("grün"));
        assert!(reply.is_true("yes"));
        assert!(!reply.is_true("no") && !reply.is_true("missing"));
        assert_eq!(reply.0["inner"], Value::Other);
        assert_eq!(reply.0["list"], Value::Other);
    }

    #[test]
    fn a_document_that_is_cut_short_is_refused() {
        let bytes = Document::new().text("hello", "world").to_bytes();
        for end in 0..bytes.len() {
            assert!(Reply::parse(&bytes[..end]).is_err(), "{end} bytes");
        }
    }
}
