//! The compiler of statement text; no other module makes any.
//!
//! Text comes from string literals (`include_str!` of a query or a migration), written with `:name` parameters and for
//! the schema `ratchet`. Only a number, a `?`, or a [`Namespace`], whose name is checked, is put into it; values are
//! bound. That is why this module, and no other, may vouch for text with `AssertSqlSafe`.
//!
//! - `:name` becomes `$1` on PostgreSQL, with the same number at every mention. On MySQL and SQLite each mention
//!   becomes a `?` and is bound again. [`Statement::binds`] gives the order.
//! - `:[one, two]` is one parameter too, on databases without arrays: several arrays combined into rows.
//! - `ratchet.table` becomes the table in the namespace, and the word `ratchet` alone the schema itself.
//! - Quotes and comments stay as they are. So do `::` casts. In a `$$` body there are no parameters, but tables are
//!   put into the namespace there too. A slice of an array with a name needs a blank: `a[1 : n]`.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use ratchet_api::{StoreError, StoreErrorKind};
use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::lex::{Kind, Piece, Unterminated, body_tag, pieces};
use crate::migrate::Script;
use crate::{Dialect, Namespace};

/// The schema that texts are written for.
const WRITTEN_FOR: &str = "ratchet";

/// A statement, ready for one dialect and one namespace. Cloning it copies no text.
///
/// ```
/// use ratchet_store_core::{Dialect, Namespace, Statement};
///
/// let text = "SELECT job_id FROM ratchet.scheduler_job WHERE queue = :queue AND method = :method OR :queue = ''";
/// let here = Namespace::schema("billing")?;
/// let statement = Statement::compile(text, Dialect::Postgres, &here)?;
/// assert_eq!(
///     statement.sql().as_str(),
///     r#"SELECT job_id FROM "billing"."scheduler_job" WHERE queue = $1 AND method = $2 OR $1 = ''"#
/// );
/// let names = |statement: &Statement| statement.binds().iter().map(ToString::to_string).collect::<Vec<_>>();
/// assert_eq!(names(&statement), ["queue", "method"]);
/// assert_eq!(names(&Statement::compile(text, Dialect::MySql, &here)?), ["queue", "method", "queue"]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Statement {
    sql: SqlStr,
    binds: Arc<[Bind]>,
}

/// A parameter of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// The value of this name.
    One(&'static str),
    /// Arrays of one length, combined into rows.
    Rows(Box<[&'static str]>),
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(name) => f.write_str(name),
            Self::Rows(names) => write!(f, "[{}]", names.join(", ")),
        }
    }
}

/// The error for a text that cannot become a statement: a mistake of its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A quote, a comment or a body has no end.
    #[error("line {line}: a quote, comment or body begins here and never ends")]
    Unterminated {
        /// The line that it begins on.
        line: usize,
    },
    /// The text needs a schema, and the namespace is not one.
    #[error("the text names the schema itself, which only a namespace that is a schema can stand for")]
    NeedsSchema,
}

impl From<Unterminated> for TextError {
    fn from(Unterminated { line }: Unterminated) -> Self {
        Self::Unterminated { line }
    }
}

impl From<TextError> for StoreError {
    fn from(error: TextError) -> Self {
        Self::new(StoreErrorKind::Other, "compile", error.to_string())
    }
}

impl Statement {
    /// Compiles a text that was written with `:name` parameters for the schema `ratchet`.
    pub fn compile(text: &'static str, dialect: Dialect, namespace: &Namespace) -> Result<Self, TextError> {
        Self::of(&pieces(text, dialect)?, dialect, namespace)
    }

    /// Compiles a text of several statements, leaving out what is only space and comments.
    pub fn compile_all(
        text: &'static str,
        dialect: Dialect,
        namespace: &Namespace,
    ) -> Result<Vec<Self>, TextError> {
        parts(&pieces(text, dialect)?).map(|part| Self::of(part, dialect, namespace)).collect()
    }

    fn of(pieces: &[Piece<'static>], dialect: Dialect, namespace: &Namespace) -> Result<Self, TextError> {
        let mut writer = Writer::new(dialect, namespace, Parameters::Number(Vec::new()));
        writer.write(pieces)?;
        let binds = match writer.parameters {
            Parameters::Number(texts) => texts.into_iter().map(bind).collect(),
            Parameters::Keep => Arc::default(),
        };
        Ok(Self { sql: vouch(writer.text), binds })
    }

    /// The statement with a transaction around it, in one text.
    pub(crate) fn within(&self, begin: &'static str) -> Self {
        let text = format!("{begin};\n{};\nCOMMIT", self.sql.as_str());
        Self { sql: vouch(text), binds: Arc::clone(&self.binds) }
    }

    /// The text to send.
    pub fn sql(&self) -> SqlStr {
        self.sql.clone()
    }

    /// The names of the parameters in the order in which they are bound.
    pub fn binds(&self) -> &[Bind] {
        &self.binds
    }
}

/// Puts a script into the namespace, as one text. Scripts have no parameters.
pub(crate) fn script(
    text: &'static str,
    dialect: Dialect,
    namespace: &Namespace,
) -> Result<SqlStr, TextError> {
    in_namespace(&pieces(text, dialect)?, dialect, namespace).map(vouch)
}

/// Puts a script into the namespace and cuts it into its statements, leaving out what is only space and comments.
pub(crate) fn statements(
    text: &'static str,
    dialect: Dialect,
    namespace: &Namespace,
) -> Result<Vec<SqlStr>, TextError> {
    parts(&pieces(text, dialect)?)
        .map(|part| in_namespace(part, dialect, namespace).map(|text| vouch(text.trim().to_owned())))
        .collect()
}

/// The statements of a text.
fn parts<'p, 't>(pieces: &'p [Piece<'t>]) -> impl Iterator<Item = &'p [Piece<'t>]> {
    let is_content = |piece: &Piece<'_>| !matches!(piece.kind, Kind::Space | Kind::Comment);
    pieces.split(|piece| piece.kind == Kind::End).filter(move |part| part.iter().any(is_content))
}

/// The values that a parameter of the text binds.
fn bind(text: &'static str) -> Bind {
    match text.strip_prefix(":[").and_then(|names| names.strip_suffix(']')) {
        Some(names) => Bind::Rows(names.split(',').map(str::trim).collect()),
        None => Bind::One(&text[1..]),
    }
}

/// The names of tables, indexes and the like that a text mentions in the schema.
pub(crate) fn names(text: &str, dialect: Dialect) -> Result<BTreeSet<&str>, TextError> {
    let pieces = pieces(text, dialect)?;
    Ok((0..pieces.len()).filter_map(|at| qualified(&pieces, at)).collect())
}

/// Whether a statement changes rows, and so can be part of a transaction on every server.
pub(crate) fn changes_rows(statement: &SqlStr, dialect: Dialect) -> bool {
    let pieces = pieces(statement.as_str(), dialect).unwrap_or_default();
    let first = pieces.iter().find(|piece| !matches!(piece.kind, Kind::Space | Kind::Comment));
    let is = |word: &&str| first.is_some_and(|piece| piece.text.eq_ignore_ascii_case(word));
    ["INSERT", "UPDATE", "DELETE", "REPLACE"].iter().any(is)
}

/// One text for people who apply scripts with a tool of their own: the table of versions, then each script with the
/// statement that records it.
pub(crate) fn by_hand<'s>(
    first: &[&'static str],
    scripts: impl Iterator<Item = &'s Script>,
    record: &'static str,
    dialect: Dialect,
    namespace: &Namespace,
) -> Result<String, TextError> {
    let place = |text| in_namespace(&pieces(text, dialect)?, dialect, namespace);
    let mut text = String::new();
    for statement in first {
        text += &format!("{};\n\n", place(statement)?);
    }
    for script in scripts {
        // None of the three has a quote in it: digits, words and spaces, hexadecimal digits.
        let row = place(record)?
            .replace(":version", &format!("'{}'", script.version))
            .replace(":description", &format!("'{}'", script.description))
            .replace(":checksum", &format!("'{}'", script.checksum()));
        let body = place(script.sql)?;
        let body = body.trim_end().trim_end_matches(';');
        text += &format!("-- {} {}\n{body};\n\n", script.version, script.description);
        text += &format!("{row};\n\n");
    }
    Ok(text)
}

fn in_namespace(pieces: &[Piece<'_>], dialect: Dialect, namespace: &Namespace) -> Result<String, TextError> {
    let mut writer = Writer::new(dialect, namespace, Parameters::Keep);
    writer.write(pieces)?;
    Ok(writer.text)
}

/// Marks text as safe; every text that this module makes passes here.
fn vouch(text: String) -> SqlStr {
    AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
}

/// The replacement of `:name`.
enum Parameters<'t> {
    Number(Vec<&'t str>),
    Keep,
}

struct Writer<'t, 'n> {
    dialect: Dialect,
    namespace: &'n Namespace,
    parameters: Parameters<'t>,
    text: String,
}

impl<'t, 'n> Writer<'t, 'n> {
    const fn new(dialect: Dialect, namespace: &'n Namespace, parameters: Parameters<'t>) -> Self {
        Self { dialect, namespace, parameters, text: String::new() }
    }

    fn write(&mut self, pieces: &[Piece<'t>]) -> Result<(), TextError> {
        let mut at = 0;
        while let Some(piece) = pieces.get(at) {
            at += 1;
            match piece.kind {
                Kind::Param | Kind::Rows => self.parameter(piece.text),
                Kind::Body => self.body(piece.text)?,
                Kind::Word if is_schema(pieces, at - 1) => match qualified(pieces, at - 1) {
                    Some(name) => {
                        self.text += &self.namespace.qualify(self.dialect, name);
                        at += 2;
                    }
                    None => self.text += &self.schema()?,
                },
                _ => self.text += piece.text,
            }
        }
        Ok(())
    }

    fn parameter(&mut self, text: &'t str) {
        let Parameters::Number(binds) = &mut self.parameters else {
            self.text += text;
            return;
        };
        let known = binds.iter().position(|bind| *bind == text);
        let Some(mark) = self.dialect.number_mark() else {
            binds.push(text);
            self.text.push('?');
            return;
        };
        let number = 1 + known.unwrap_or_else(|| {
            binds.push(text);
            binds.len() - 1
        });
        write!(self.text, "{mark}{number}").expect("a string takes everything");
    }

    /// Writes a body, which is code as a rule. One that is not SQL is text, and stays as it is.
    fn body(&mut self, text: &str) -> Result<(), TextError> {
        let tag = body_tag(text).map_or(0, str::len);
        let inner = &text[tag..text.len() - tag];
        match pieces(inner, self.dialect) {
            Ok(pieces) => {
                self.text += &text[..tag];
                self.text += &in_namespace(&pieces, self.dialect, self.namespace)?;
                self.text += &text[..tag];
            }
            Err(Unterminated { .. }) => self.text += text,
        }
        Ok(())
    }

    fn schema(&self) -> Result<String, TextError> {
        self.namespace.quoted_schema(self.dialect).ok_or(TextError::NeedsSchema)
    }
}

/// Whether the piece is the word `ratchet` by itself: not the column of that name in `t.ratchet`.
fn is_schema(pieces: &[Piece<'_>], at: usize) -> bool {
    let behind_dot = at > 0 && pieces[at - 1].text == ".";
    pieces[at].kind == Kind::Word && pieces[at].text == WRITTEN_FOR && !behind_dot
}

/// The name in `ratchet.name`.
fn qualified<'t>(pieces: &[Piece<'t>], at: usize) -> Option<&'t str> {
    match pieces.get(at + 1..at + 3)? {
        [dot, name] if is_schema(pieces, at) && dot.text == "." && name.kind == Kind::Word => Some(name.text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
