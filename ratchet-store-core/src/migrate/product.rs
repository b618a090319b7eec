//! The servers that the scripts are written for. Others that speak the same protocol differ where it matters to a
//! scheduler: in locks, in what a transaction can undo, in advisory locks.

use crate::Dialect;

/// Servers that call themselves PostgreSQL or MySQL somewhere in their version and are something else.
const OTHERS: [&str; 11] = [
    "redshift",
    "greenplum",
    "-yb-",
    "cockroach",
    "materialize",
    "risingwave",
    "crate",
    "tidb",
    "vitess",
    "oceanbase",
    "singlestore",
];

/// Whether this is PostgreSQL, MySQL, MariaDB or SQLite, by the version text of the server.
pub(super) fn is_supported(dialect: Dialect, version: &str) -> bool {
    let version = version.to_ascii_lowercase();
    let looks_right = match dialect {
        Dialect::Postgres => version.starts_with("postgresql "),
        // MySQL gives a bare number; MariaDB may put its own behind the number of the MySQL that it resembles.
        Dialect::MySql => version.starts_with(|c: char| c.is_ascii_digit()),
        Dialect::Sqlite => version.starts_with("3."),
    };
    looks_right && !OTHERS.iter().any(|name| version.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: S177
    #[test]
    fn only_known_products_are_migrated() {
        for (dialect, version, supported) in [
            (Dialect::Postgres, "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu", true),
            (Dialect::Postgres, "PostgreSQL 8.0.2 on i686-pc-linux-gnu, Redshift 1.0.38698", false),
            (Dialect::Postgres, "PostgreSQL 11.2-YB-2.19.0.0-b0 on x86_64-pc-linux-gnu", false),
            (Dialect::Postgres, "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)", false),
            (Dialect::MySql, "9.7.4 (Debian)", true),
            (Dialect::MySql, "8.0.36-28 Percona Server (GPL), Release 28", true),
            (Dialect::MySql, "10.11.14-MariaDB-0+deb12u2 Debian 12", true),
            (Dialect::MySql, "5.5.5-10.6.4-MariaDB", true),
            (Dialect::MySql, "8.0.11-TiDB-v7.5.0 TiDB Server", false),
            (Dialect::MySql, "8.0.30-Vitess", false),
            (Dialect::MySql, "5.7.25-OceanBase_CE-v4.2.1", false),
            (Dialect::Sqlite, "3.50.2", true),
            (Dialect::Sqlite, "2.8.17", false),
        ] {
            assert_eq!(is_supported(dialect, version), supported, "{version}");
        }
    }
}
