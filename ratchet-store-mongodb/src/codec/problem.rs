//! The problem with a damaged document: the field and the kind of value found, never the value, which may be secret.

use bson::{Bson, Document, RawDocument};
use serde::de::DeserializeOwned;

/// Decodes a document, or describes the problem with it.
pub(crate) fn read<T: DeserializeOwned>(raw: &RawDocument) -> Result<T, String> {
    bson::deserialize_from_slice(raw.as_bytes()).map_err(|_| problem::<T>(raw))
}

/// Decodes it once more and tracks the path to each field.
fn problem<T: DeserializeOwned>(raw: &RawDocument) -> String {
    let Ok(document) = Document::try_from(raw) else {
        return "it is no BSON".to_owned();
    };
    let document = Bson::Document(document);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(bson::Deserializer::new(document.clone()))
    else {
        return "its bytes are not in order".to_owned();
    };
    let path = error.path();
    let message = error.inner().to_string();
    if let Some((_, field)) = message.split_once("missing field `") {
        let inside = path.iter().map(|step| format!("{step}.")).collect::<String>();
        return format!("{inside}{}: it is missing", field.split('`').next().unwrap_or_default());
    }
    let found = path.iter().try_fold(&document, |value, step| match value {
        Bson::Document(fields) => fields.get(step.to_string()),
        Bson::Array(items) => items.get(step.to_string().trim_matches(['[', ']']).parse::<usize>().ok()?),
        _ => None,
    });
    let kind = found.map_or("value", kind);
    format!("{path}: a {kind} that cannot be read")
}

fn kind(value: &Bson) -> &'static str {
    match value {
        Bson::Double(_) | Bson::Int32(_) | Bson::Int64(_) | Bson::Decimal128(_) => "number",
        Bson::String(_) => "text",
        Bson::Array(_) => "list",
        Bson::Document(_) => "document",
        Bson::Boolean(_) => "boolean",
        Bson::Null | Bson::Undefined => "null",
        Bson::Binary(_) => "binary value",
        Bson::DateTime(_) | Bson::Timestamp(_) => "date",
        _ => "value of a rare kind",
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only what cannot be read is told")]
    struct Outer {
        count: u32,
        inner: Inner,
        list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only what cannot be read is told")]
    struct Inner {
        name: String,
        kind: Kind,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        A,
    }

    fn told(document: &Document) -> String {
        let raw = RawDocumentBuf::try_from(document).unwrap();
        read::<Outer>(&raw).unwrap_err()
    }

    #[test]
    fn a_problem_names_the_field_and_not_the_value() {
        let good = || doc! { "name": "x", "kind": "A" };
        let whole = || doc! { "count": 1, "inner": good(), "list": [good()] };
        let with = |field: &str, value: Bson| {
            let mut document = whole();
            document.insert(field, value);
            told(&document)
        };
        assert_eq!(with("count", "hunter2".into()), "count: a text that cannot be read");
        assert_eq!(with("count", (-1).into()), "count: a number that cannot be read");
        let inner = doc! { "name": 12345, "kind": "A" };
        assert_eq!(with("inner", inner.into()), "inner.name: a number that cannot be read");
        let inner = doc! { "name": "x", "kind": "hunter2" };
        assert_eq!(with("inner", inner.clone().into()), "inner.kind: a text that cannot be read");
        assert_eq!(with("list", vec![good(), inner].into()), "list[1].kind: a text that cannot be read");
        assert_eq!(with("inner", doc! { "name": "x" }.into()), "inner.kind: it is missing");
        let mut document = whole();
        document.remove("count");
        assert_eq!(told(&document), "count: it is missing");
    }
}
