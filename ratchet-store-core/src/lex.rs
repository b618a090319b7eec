//! Cuts SQL text into the few kinds of pieces that matter for parameters, names and statement ends.
//!
//! Joined together, the pieces of a text are the text again.

use crate::Dialect;

/// The kind of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword or a name without quotes.
    Word,
    /// `:name`.
    Param,
    /// `:[one, two]`, where arrays are bound as JSON.
    Rows,
    /// A literal or a name in quotes, and MySQL's `/*! … */`: to be left alone, but part of a statement.
    Quoted,
    /// `$tag$ … $tag$`.
    Body,
    /// A comment: to the end of the line, or between `/*` and `*/`.
    Comment,
    /// White space.
    Space,
    /// `;`
    End,
    /// Numbers, operators, parentheses.
    Other,
}

/// A piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'t> {
    pub(crate) kind: Kind,
    pub(crate) text: &'t str,
}

/// A quote, a comment or a body that never ends, with the line that it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unterminated {
    pub(crate) line: usize,
}

/// Cuts a text into pieces.
pub(crate) fn pieces(text: &str, dialect: Dialect) -> Result<Vec<Piece<'_>>, Unterminated> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let line = || Unterminated { line: text[..at].matches('\n').count() + 1 };
        let (kind, length) = Cutter { rest, dialect }.next().ok_or_else(line)?;
        pieces.push(Piece { kind, text: &rest[..length] });
        at += length;
    }
    Ok(pieces)
}

struct Cutter<'t> {
    rest: &'t str,
    dialect: Dialect,
}

impl Cutter<'_> {
    /// The kind and the length of the first piece; `None` if it has no end.
    fn next(&self) -> Option<(Kind, usize)> {
        let mut chars = self.rest.chars();
        let first = chars.next()?;
        let second = chars.next().unwrap_or('\0');
        let mysql = self.dialect == Dialect::MySql;
        match (first, second) {
            (c, _) if c.is_whitespace() => Some((Kind::Space, self.run(char::is_whitespace))),
            ('-', '-') if self.begins_line_comment() => Some((Kind::Comment, self.line())),
            ('#', _) if mysql => Some((Kind::Comment, self.line())),
            ('/', '*') => self.block_comment(),
            ('E' | 'e', '\'') if self.dialect == Dialect::Postgres => {
                Some((Kind::Quoted, 1 + self.quoted(1, '\'', true)?))
            }
            ('\'' | '"', _) => Some((Kind::Quoted, self.quoted(0, first, mysql)?)),
            ('`', _) if self.dialect != Dialect::Postgres => {
                Some((Kind::Quoted, self.quoted(0, '`', false)?))
            }
            ('[', _) if self.dialect == Dialect::Sqlite => Some((Kind::Quoted, self.through(1, "]")?)),
            ('$', _) if self.dialect == Dialect::Postgres => self.body(),
            (':', ':') => Some((Kind::Other, 2)),
            (':', '[') if self.dialect != Dialect::Postgres => Some((Kind::Rows, self.through(2, "]")?)),
            (':', c) if begins_word(c) && c.is_ascii() => {
                Some((Kind::Param, 1 + length(&self.rest[1..], |c| c.is_ascii_alphanumeric() || c == '_')))
            }
            (';', _) => Some((Kind::End, 1)),
            (c, _) if begins_word(c) => Some((Kind::Word, self.run(continues_word))),
            (c, _) if c.is_ascii_digit() => Some((Kind::Other, self.run(continues_word))),
            (c, _) => Some((Kind::Other, c.len_utf8())),
        }
    }

    fn run(&self, belongs: fn(char) -> bool) -> usize {
        length(self.rest, belongs)
    }

    fn line(&self) -> usize {
        length(self.rest, |c| c != '\n')
    }

    /// To MySQL, `5--1` is arithmetic; a comment needs a blank after the dashes.
    fn begins_line_comment(&self) -> bool {
        self.dialect != Dialect::MySql
            || self.rest[2..].chars().next().is_none_or(|c| c.is_whitespace() || c.is_control())
    }

    fn block_comment(&self) -> Option<(Kind, usize)> {
        // MySQL executes the content of such a comment; MariaDB has its own form.
        let is_code = self.dialect == Dialect::MySql
            && ["/*!", "/*M!", "/*+"].iter().any(|start| self.rest.starts_with(start));
        match self.dialect {
            Dialect::Postgres => Some((Kind::Comment, self.nested_comment()?)),
            Dialect::MySql | Dialect::Sqlite => {
                Some((if is_code { Kind::Quoted } else { Kind::Comment }, self.through(2, "*/")?))
            }
        }
    }

    fn nested_comment(&self) -> Option<usize> {
        let (mut at, mut depth) = (2, 1);
        while depth > 0 {
            at += self.rest[at..].find(['/', '*'])?;
            let step = match self.rest.get(at..at + 2) {
                Some("/*") => 1,
                Some("*/") => -1,
                _ => 0,
            };
            depth += step;
            at += if step == 0 { 1 } else { 2 };
        }
        Some(at)
    }

    /// The length of a quotation that begins at `from`. A doubled quote is a quote inside it.
    fn quoted(&self, from: usize, quote: char, backslash: bool) -> Option<usize> {
        let mut chars = self.rest[from + 1..].char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c == '\\' && backslash {
                chars.next()?;
            } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
                return Some(at + 2);
            }
        }
        None
    }

    /// The length up to and including the next `end`.
    fn through(&self, from: usize, end: &str) -> Option<usize> {
        self.rest[from..].find(end).map(|at| from + at + end.len())
    }

    /// A body, if one begins here. `$1` is none, and neither is a lone dollar sign.
    fn body(&self) -> Option<(Kind, usize)> {
        match body_tag(self.rest) {
            Some(tag) => Some((Kind::Body, self.through(tag.len(), tag)?)),
            None => Some((Kind::Other, 1)),
        }
    }
}

/// The tag that opens a body: `$$` or `$name$`.
pub(crate) fn body_tag(text: &str) -> Option<&str> {
    let inner = length(text.strip_prefix('$')?, |c| continues_word(c) && c != '$');
    let tag = text.get(..inner + 2)?;
    let starts_well = inner == 0 || tag[1..].starts_with(begins_word);
    (starts_well && tag.ends_with('$')).then_some(tag)
}

fn length(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn begins_word(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn continues_word(c: char) -> bool {
    begins_word(c) || c.is_ascii_digit() || c == '$'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Dialect; 3] = [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite];

    /// The pieces that are not space.
    fn cut(text: &str, dialect: Dialect) -> Vec<(Kind, &str)> {
        let pieces = pieces(text, dialect).unwrap();
        pieces.iter().filter(|p| p.kind != Kind::Space).map(|p| (p.kind, p.text)).collect()
    }

    #[test]
    fn each_dialect_has_its_own_quotes_and_comments() {
        use Dialect::{MySql, Postgres, Sqlite};
        let table: [(&[Dialect], Kind, &str); 25] = [
            (&ALL, Kind::Quoted, "''"),
            (&ALL, Kind::Quoted, "'it''s; :a'"),
            (&ALL, Kind::Quoted, "\"a\"\":b\""),
            (&ALL, Kind::Comment, "-- a ; 'b"),
            (&ALL, Kind::Comment, "/* ' ; */"),
            (&ALL, Kind::Param, ":a_1"),
            (&ALL, Kind::Param, ":_A"),
            (&ALL, Kind::Other, "::"),
            (&ALL, Kind::Word, "übung"),
            (&ALL, Kind::Word, "a1$"),
            (&ALL, Kind::Other, "1e5"),
            (&ALL, Kind::End, ";"),
            (&[Postgres, Sqlite], Kind::Comment, "--a"),
            (&[MySql], Kind::Comment, "--"),
            (&[MySql], Kind::Comment, "# a 'b"),
            (&[MySql], Kind::Quoted, "/*!50001 a; b */"),
            (&[MySql], Kind::Quoted, r"'it\'s; :a'"),
            (&[MySql], Kind::Quoted, r#""a\" :b""#),
            (&[MySql, Sqlite], Kind::Quoted, "`a;``b`"),
            (&[Sqlite], Kind::Quoted, "[a;b]"),
            (&[Postgres], Kind::Comment, "/* a /* b */ ; */"),
            (&[Postgres], Kind::Quoted, r"E'it\'s'"),
            (&[Postgres, Sqlite], Kind::Quoted, r"'\'"),
            (&[Postgres], Kind::Body, "$$ a; ' :b $$"),
            (&[Postgres], Kind::Body, "$x1$ $$ $x$ $x1$"),
        ];
        for (dialects, kind, text) in table {
            for dialect in dialects {
                assert_eq!(cut(text, *dialect), [(kind, text)], "{dialect:?}");
            }
        }
    }

    #[test]
    fn what_only_looks_like_something_is_not_it() {
        let kinds = |text, dialect| cut(text, dialect).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        use Kind::{Other, Param, Word};
        assert_eq!(kinds("a::b", Dialect::Postgres), [Word, Other, Word]);
        assert_eq!(kinds("a := 1", Dialect::Postgres), [Word, Other, Other, Other]);
        assert_eq!(kinds("$1 $", Dialect::Postgres), [Other, Other, Other]);
        assert_eq!(kinds("a #> b", Dialect::Postgres), [Word, Other, Other, Word]);
        assert_eq!(kinds("5--1", Dialect::MySql), [Other, Other, Other, Other]);
        assert_eq!(kinds(":a:b", Dialect::MySql), [Param, Param]);
    }

    #[test]
    fn what_never_ends_is_reported_with_its_line() {
        for (text, dialect) in [
            ("a\n'b", Dialect::Postgres),
            ("a\n\"b\n", Dialect::Sqlite),
            ("a\n`b", Dialect::MySql),
            ("a\n/* /* */", Dialect::Postgres),
            ("\n/* b", Dialect::MySql),
            ("\n$a$ $b$", Dialect::Postgres),
            ("\n'b\\'", Dialect::MySql),
            ("\n'b\\", Dialect::MySql),
            ("\n[b", Dialect::Sqlite),
        ] {
            assert_eq!(pieces(text, dialect), Err(Unterminated { line: 2 }), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_pieces_put_together_are_the_text(
            text in "([a-z:;'\"`$#\\-/*\\\\\\[\\]é \n]|--|/\\*|\\*/|\\$\\$){0,30}"
        ) {
            for dialect in ALL {
                if let Ok(pieces) = pieces(&text, dialect) {
                    prop_assert_eq!(pieces.iter().map(|piece| piece.text).collect::<String>(), &text[..]);
                    prop_assert!(pieces.iter().all(|piece| !piece.text.is_empty()));
                }
            }
        }
    }
}
