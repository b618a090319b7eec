//! The common parts of Ratchet's SQL stores.
//!
//! A store contains the text of its statements in its own dialect, and never the machinery around them:
//!
//! - [`Namespace`]: the schema or the table prefix that keeps applications in one database apart;
//! - [`params`]: compiles `:name` text to a [`Statement`]; no other place makes statement text;
//! - [`SqlStore`]: the store itself, for every dialect: order of steps, verdicts, sessions, re-runs, timeouts;
//! - [`driver`]: the interface to a database's driver;
//! - [`ConstraintDetector`]: the meaning of a database error, by its code;
//! - [`transient`]: re-runs a transaction that lost a race against others;
//! - [`migrate`]: [`SchemaMigrator`], which brings the tables to the version that a program needs.
//!
//! The features `postgres`, `mysql` and `sqlite` enable the drivers; without any, the parts that need none remain.

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
