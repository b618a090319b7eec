//! The SQL dialects, and how their texts differ.

/// A SQL dialect. MariaDB speaks MySQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

impl Dialect {
    /// The quote around a name, so that it is taken literally and never for a keyword.
    pub(crate) const fn name_quote(self) -> char {
        match self {
            Self::Postgres | Self::Sqlite => '"',
            Self::MySql => '`',
        }
    }

    /// Whether a change of a table (DDL) is part of a transaction like any other statement.
    pub(crate) const fn undoes_scripts(self) -> bool {
        match self {
            Self::Postgres | Self::Sqlite => true,
            Self::MySql => false,
        }
    }

    /// The prefix of a numbered parameter. MySQL has no numbered parameters; those of SQLite leave gaps in a text of
    /// several statements, and its driver then binds the wrong values.
    pub(crate) const fn number_mark(self) -> Option<char> {
        match self {
            Self::Postgres => Some('$'),
            Self::MySql | Self::Sqlite => None,
        }
    }

    /// Whether the driver takes a whole file, with a transaction around it, at once: SQLite's driver is a thread, and
    /// each round trip to it costs.
    pub(crate) const fn takes_whole_texts(self) -> bool {
        match self {
            Self::Sqlite => true,
            Self::Postgres | Self::MySql => false,
        }
    }
}
