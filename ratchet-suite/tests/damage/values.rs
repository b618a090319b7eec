//! Wrong values for the columns of a database, by type: bounds, wrong types, and values that no program writes.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, doc};

use crate::tables::Wrong;

fn of(values: &[&'static str], nullable: bool) -> Vec<Wrong> {
    let null = if nullable { &["NULL"][..] } else { &[] };
    values.iter().chain(null).map(|value| Wrong::Sql(value)).collect()
}

/// Returns values for SQLite, which checks types only in strict tables; a text can be any bytes in all of them.
pub(crate) fn sqlite(kind: &str, nullable: bool) -> Vec<Wrong> {
    let values: &[&str] = match kind {
        "INTEGER" => &[
            "-9223372036854775808",
            "9223372036854775807",
            "-1",
            "0",
            "1",
            "2147483648",
            "4294967296",
            "253370764800000",
            "'word'",
            "1.5",
            "x'ff'",
        ],
        "BLOB" => &[
            "x''",
            "x'ff'",
            "zeroblob(16)",
            "x'ffffffffffffffffffffffffffffffff'",
            "zeroblob(17)",
            "'word'",
            "7",
        ],
        _ => &[
            "''",
            "'NOBODY'",
            "CAST(x'ff' AS TEXT)",
            "CAST(x'610062' AS TEXT)",
            "char(27, 10, 8238)",
            "replace(hex(zeroblob(5000)), '00', 'long')",
            "replace(hex(zeroblob(3000)), '00', '[')",
            "'[1]'",
            "'{\"a\":'",
            "x'ff'",
            "7",
        ],
    };
    of(values, nullable)
}

/// Returns values for PostgreSQL; those that the server refuses are counted as such.
pub(crate) fn postgres(kind: &str, nullable: bool) -> Vec<Wrong> {
    let values: &[&str] = match kind {
        "bigint" => {
            &["-9223372036854775808", "9223372036854775807", "-1", "0", "4294967296", "9223372036854775808"]
        }
        "integer" => &["-2147483648", "2147483647", "-1", "0", "2147483648"],
        "smallint" => &["-32768", "32767", "-1", "0", "32768"],
        "boolean" => &["true", "false"],
        "uuid" => &[
            "'00000000-0000-0000-0000-000000000000'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
            "gen_random_uuid()",
            "'7'",
        ],
        "bytea" => &["'\\x'", "'\\xff'", "sha256('\\x00')"],
        "ARRAY" => {
            &["'{}'", "'{NULL}'", "'{\"\"}'", "array_fill('long'::text, '{10000}')", "'{{a,b},{c,d}}'"]
        }
        "json" | "jsonb" => {
            &["'null'", "'7'", "'{\"a\": {}}'", "(repeat('[', 3000) || repeat(']', 3000))::json", "'{'"]
        }
        time if time.starts_with("timestamp") => &[
            "'infinity'",
            "'-infinity'",
            "'294276-12-31 23:59:59Z'",
            "'4713-01-01 00:00:00Z BC'",
            "'1970-01-01 00:00:00Z'",
            "'9999-01-01 00:00:00Z'",
        ],
        _ => &[
            "''",
            "'NOBODY'",
            "E'\\x1b\\n\\u202e'",
            "repeat('long', 5000)",
            "repeat('x', 255)",
            "repeat('[', 3000)",
            "E'\\xff'",
        ],
    };
    of(values, nullable)
}

/// Returns values for MongoDB: any field of a document accepts any value.
pub(crate) fn documents() -> Vec<Wrong> {
    let uuid = |bytes: Vec<u8>| Bson::from(Binary { subtype: BinarySubtype::Uuid, bytes });
    let values = [
        Bson::Null,
        Bson::from("NOBODY"),
        Bson::from(""),
        Bson::from("\u{1b}\n\u{202e}\0"),
        Bson::from("long".repeat(5_000)),
        Bson::from(i64::MIN),
        Bson::from(i64::MAX),
        Bson::from(-1),
        Bson::from(f64::NAN),
        Bson::from(true),
        Bson::DateTime(DateTime::from_millis(i64::MAX)),
        Bson::DateTime(DateTime::from_millis(i64::MIN)),
        uuid(vec![0; 16]),
        uuid(vec![255; 7]),
        Bson::from(doc! { "a": { "b": [] } }),
        Bson::Array(vec![Bson::Null, Bson::from(7)]),
    ];
    values.into_iter().map(Wrong::Bson).chain([Wrong::Missing]).collect()
}
