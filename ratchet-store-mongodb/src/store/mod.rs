//! The sub-traits of the contract, one or two a file.

mod archive;
mod batch;
mod batch_status;
pub(crate) mod bulk;
pub(crate) mod claim;
mod crud;
mod fast_commit;
mod fast_success;
mod info;
mod lock;
mod node;
mod parking;
mod pause;
mod permit;
mod query;
mod record;
mod recurring;
mod retry;
mod terminal;
