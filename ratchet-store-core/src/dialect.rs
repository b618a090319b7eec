//! How the databases' languages differ where text is concerned.

/// A language of SQL. MariaDB speaks MySQL's.
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
    /// What stands around a name, so that it is taken letter by letter and never for a keyword.
    pub(crate) const fn name_quote(self) -> char {
        match self {
            Self::Postgres | Self::Sqlite => '"',
            Self::MySql => '`',
        }
    }

    /// Whether a change of a table is part of a transaction like any other.
    pub(crate) const fn undoes_scripts(self) -> bool {
        match self {
            Self::Postgres | Self::Sqlite => true,
            Self::MySql => false,
        }
    }

    /// What stands before the number of a parameter. MySQL knows no numbers; those of SQLite leave gaps in a text of
    /// several statements, and its driver then binds the wrong values.
    pub(crate) const fn number_mark(self) -> Option<char> {
        match self {
            Self::Postgres => Some('$'),
            Self::MySql | Self::Sqlite => None,
        }
    }

    /// Whether the driver takes a whole file, with a transaction around it, at once: SQLite's is a thread, and each way
    /// there and back costs.
    pub(crate) const fn takes_whole_texts(self) -> bool {
        match self {
            Self::Sqlite => true,
            Self::Postgres | Self::MySql => false,
        }
    }
}
