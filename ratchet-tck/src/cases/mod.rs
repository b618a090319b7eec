//! The cases, one area per file.

pub mod archive;
pub mod batch;
pub mod cancel;
pub mod claim;
pub mod commit;
pub mod corrupt;
pub mod effects;
pub mod insert;
pub mod keys;
pub mod load;
pub mod lock;
pub mod node;
pub mod order;
pub mod parked;
pub mod pause;
pub mod payload;
pub mod permit;
pub mod pulse;
pub mod query;
pub mod race;
pub mod record;
pub mod recover;
pub mod recurring;
pub mod retry;
pub mod single;
pub mod suspects;
pub mod time;
pub mod transition;

use crate::Case;

/// Returns every case of every area.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        insert::CASES,
        keys::CASES,
        payload::CASES,
        load::CASES,
        claim::CASES,
        order::CASES,
        node::CASES,
        pulse::CASES,
        recover::CASES,
        lock::CASES,
        parked::CASES,
        suspects::CASES,
        permit::CASES,
        commit::CASES,
        effects::CASES,
        batch::CASES,
        cancel::CASES,
        retry::CASES,
        pause::CASES,
        transition::CASES,
        single::CASES,
        recurring::CASES,
        archive::CASES,
        record::CASES,
        query::CASES,
        corrupt::CASES,
        race::CASES,
        time::CASES,
    ]
    .into_iter()
    .flatten()
}
