#![doc = include_str!("../README.md")]

mod checkout;
mod lookup;
mod process_id;
mod program;
mod record;
mod server;
#[cfg(feature = "start")]
pub mod start;

pub use lookup::{NoServer, url};
pub use program::program_of;
pub use server::{Server, UnknownServer};
