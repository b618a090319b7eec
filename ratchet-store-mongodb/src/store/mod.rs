//! The sub-traits of the contract, one or two a file.

mod archive;
mod batch;
mod batch_status;
mod bulk;
mod claim;
mod crud;
mod fast_commit;
mod info;
mod lock;
mod node;
mod pause;
mod permit;
mod query;
mod record;
mod recurring;
mod retry;
mod terminal;
