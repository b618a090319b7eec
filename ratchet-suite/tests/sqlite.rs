//! The engine on the SQLite store.

fn main() -> std::process::ExitCode {
    ratchet_suite::run(ratchet_suite::test_store::sqlite)
}
