#![doc = include_str!("../README.md")]

mod checkout;
mod lookup;
mod process_id;
mod record;
mod server;
#[cfg(feature = "start")]
pub mod start;

pub use lookup::{NoServer, url};
pub use server::{Server, UnknownServer};
