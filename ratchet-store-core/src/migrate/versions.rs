//! `ratchet_schema_version` in each dialect: how it is made, written and read. A clean install makes the same table.

use crate::Dialect;

/// The texts of one dialect.
pub(super) struct Texts {
    /// Makes the schema, where there are schemas.
    pub(super) schema: Option<&'static str>,
    /// Makes the table.
    pub(super) table: &'static str,
    /// Records a script as applied now.
    pub(super) record: &'static str,
    /// Reads all rows; times are in milliseconds.
    pub(super) recorded: &'static str,
}

/// The name of the table.
pub(super) const NAME: &str = "ratchet_schema_version";

pub(super) const fn texts(dialect: Dialect) -> &'static Texts {
    match dialect {
        Dialect::Postgres => &POSTGRES,
        Dialect::MySql => &MYSQL,
        Dialect::Sqlite => &SQLITE,
    }
}

const POSTGRES: Texts = Texts {
    schema: Some("CREATE SCHEMA IF NOT EXISTS ratchet"),
    table: "\
CREATE TABLE IF NOT EXISTS ratchet.ratchet_schema_version (
    version     varchar(20) PRIMARY KEY,
    applied_at  timestamptz(3) NOT NULL,
    description varchar(200) NOT NULL,
    checksum    varchar(64) NOT NULL
)",
    record: "\
INSERT INTO ratchet.ratchet_schema_version (version, applied_at, description, checksum)
VALUES (:version, date_trunc('milliseconds', clock_timestamp()), :description, :checksum)",
    recorded: "\
SELECT version, description, checksum, (extract(epoch FROM applied_at) * 1000)::bigint AS applied_at
FROM ratchet.ratchet_schema_version",
};

const MYSQL: Texts = Texts {
    schema: Some("CREATE DATABASE IF NOT EXISTS ratchet"),
    table: "\
CREATE TABLE IF NOT EXISTS ratchet.ratchet_schema_version (
    version     VARCHAR(20) NOT NULL PRIMARY KEY,
    applied_at  DATETIME(3) NOT NULL,
    description VARCHAR(200) NOT NULL,
    checksum    VARCHAR(64) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    record: "\
INSERT INTO ratchet.ratchet_schema_version (version, applied_at, description, checksum)
VALUES (:version, UTC_TIMESTAMP(3), :description, :checksum)",
    recorded: "\
SELECT version, description, checksum,
    CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', applied_at) DIV 1000 AS SIGNED) AS applied_at
FROM ratchet.ratchet_schema_version",
};

const SQLITE: Texts = Texts {
    schema: None,
    table: "\
CREATE TABLE IF NOT EXISTS ratchet.ratchet_schema_version (
    version     TEXT NOT NULL PRIMARY KEY,
    applied_at  INTEGER NOT NULL,
    description TEXT NOT NULL,
    checksum    TEXT NOT NULL
)",
    record: "\
INSERT INTO ratchet.ratchet_schema_version (version, applied_at, description, checksum)
VALUES (:version, CAST(round(unixepoch('subsec') * 1000) AS INTEGER), :description, :checksum)",
    recorded: "\
SELECT version, description, checksum, CAST(applied_at AS INTEGER) AS applied_at
FROM ratchet.ratchet_schema_version",
};
