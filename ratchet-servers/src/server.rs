//! The list of servers.

use std::{fmt, str::FromStr};

/// A server that tests and benchmarks run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Server {
    /// PostgreSQL.
    Postgres,
    /// MySQL.
    Mysql,
    /// MariaDB.
    Mariadb,
    /// MongoDB, as a replica set: of one member unless more are asked for.
    Mongodb,
    /// PgBouncer in transaction mode, in front of PostgreSQL.
    Pgbouncer,
}

impl Server {
    /// Every server. A pooler comes after the server behind it.
    pub const ALL: [Self; 5] = [Self::Postgres, Self::Mysql, Self::Mariadb, Self::Mongodb, Self::Pgbouncer];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
            Self::Mongodb => "mongodb",
            Self::Pgbouncer => "pgbouncer",
        }
    }

    /// One line for a help text.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
            Self::Mariadb => "MariaDB",
            Self::Mongodb => "MongoDB, as a replica set",
            Self::Pgbouncer => "PgBouncer in transaction mode, before PostgreSQL",
        }
    }

    /// The environment variable with the URL of this server.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "RATCHET_TEST_POSTGRES_URL",
            Self::Mysql => "RATCHET_TEST_MYSQL_URL",
            Self::Mariadb => "RATCHET_TEST_MARIADB_URL",
            Self::Mongodb => "RATCHET_TEST_MONGODB_URL",
            Self::Pgbouncer => "RATCHET_TEST_PGBOUNCER_URL",
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Server {
    type Err = UnknownServer;

    fn from_str(name: &str) -> Result<Self, UnknownServer> {
        Self::ALL.into_iter().find(|server| server.name() == name).ok_or(UnknownServer)
    }
}

/// A name that is not in the list of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown server")]
pub struct UnknownServer;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_parsed_to_its_server() {
        for server in Server::ALL {
            assert_eq!(server.name().parse(), Ok(server));
        }
        assert_eq!("oracle".parse::<Server>(), Err(UnknownServer));
    }

    #[test]
    fn the_variable_follows_from_the_name() {
        for server in Server::ALL {
            assert_eq!(server.variable(), format!("RATCHET_TEST_{}_URL", server.name().to_uppercase()));
        }
    }
}
