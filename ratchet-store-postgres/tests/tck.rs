//! The conformance suite on a real PostgreSQL.

mod common;

use std::process::ExitCode;

use common::harness::PgHarness;
use ratchet_servers::Server;
use ratchet_store_postgres::Pooler;
use ratchet_tck::Suite;

/// The cases of features that are not built yet.
const NOT_YET_BUILT: &[&str] = &[];

fn main() -> ExitCode {
    let harness = PgHarness { server: Server::Postgres, pooler: Pooler::None };
    Suite::new(harness).not_yet_built(NOT_YET_BUILT).wakeups().main()
}
