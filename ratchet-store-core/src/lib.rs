//! What Ratchet's SQL stores share.
//!
//! A store repeats the text of its statements in its own dialect, never the machinery around them:
//!
//! - [`Namespace`]: the schema or the table prefix that keeps applications in one database apart;
//! - [`params`]: `:name` text to a [`Statement`], the one place where statement text is made;
//! - [`SqlStore`]: the store itself, for every dialect: order of steps, verdicts, sessions, re-runs, timeouts;
//! - [`driver`]: the little that it needs of a database's driver;
//! - [`ConstraintDetector`]: what a database error means, by its code;
//! - [`transient`]: running a transaction again that lost against others;
//! - [`migrate`]: [`SchemaMigrator`], which brings the tables to the version that a program needs.
//!
//! The features `postgres`, `mysql` and `sqlite` bring the drivers in; without any, the parts that need none remain.

#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, reason = "some parts serve one database alone")
)]

mod connect;
mod constraint;
mod dialect;
pub mod driver;
mod lex;
pub mod migrate;
mod namespace;
pub mod params;
mod store;
pub mod transient;
mod value;

pub use connect::ConnectError;
pub use constraint::ConstraintDetector;
pub use dialect::Dialect;
pub use migrate::SchemaMigrator;
pub use namespace::{InvalidNamespace, Namespace};
pub use params::{Statement, TextError};
pub use store::{SqlOptions, SqlStore, Texts};
pub use value::Value;
