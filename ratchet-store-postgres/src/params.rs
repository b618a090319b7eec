//! Texts into statements: the one place where text that is not a literal becomes SQL.
//!
//! What goes in are files of this crate and a schema name that was checked when it was made. Values are bound, never
//! written into a text.

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::schema::Schema;

/// Compiles a text that was written for the schema `ratchet` with `:name` parameters; answers the names behind `$1`,
/// `$2`, … as well.
pub(crate) fn compile(text: &str, schema: &Schema) -> (SqlStr, Vec<String>) {
    let (sql, params) = number_parameters(text);
    (AssertSqlSafe(qualify(&sql, schema)).into_sql_str(), params)
}

/// The rules for schema names leave nothing to escape inside the quotes.
fn qualify(text: &str, schema: &Schema) -> String {
    let quoted = format!("\"{schema}\"");
    text.replace("SCHEMA ratchet", &format!("SCHEMA {quoted}")).replace("ratchet.", &format!("{quoted}."))
}

/// Replaces `:name` by `$n`, numbered by first mention. Casts (`::`), comments and quoted text stay as they are.
fn number_parameters(text: &str) -> (String, Vec<String>) {
    let (mut sql, mut params) = (String::with_capacity(text.len()), Vec::<String>::new());
    let mut rest = text;
    while let Some(at) = rest.find([':', '-', '\'']) {
        sql.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.as_bytes() {
            [b':', b':', ..] => 2,
            [b':', first, ..] if first.is_ascii_lowercase() => {
                let name = &rest[1..][..word_len(&rest[1..])];
                let place = params.iter().position(|known| known == name).unwrap_or_else(|| {
                    params.push(name.to_owned());
                    params.len() - 1
                });
                sql.push('$');
                sql.push_str(&(place + 1).to_string());
                rest = &rest[1 + name.len()..];
                continue;
            }
            [b'-', b'-', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'\'', ..] => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
            _ => 1,
        };
        sql.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    sql.push_str(rest);
    (sql, params)
}

fn word_len(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_by_first_mention() {
        let (sql, params) = number_parameters("SELECT :b::text, ':no', :a_1 -- :no\nWHERE :b - 1 > :a_1");
        assert_eq!(sql, "SELECT $1::text, ':no', $2 -- :no\nWHERE $1 - 1 > $2");
        assert_eq!(params, ["b", "a_1"]);
    }
}
