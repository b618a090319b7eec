//! The engine on the PostgreSQL store.

fn main() -> std::process::ExitCode {
    ratchet_suite::run(ratchet_suite::test_store::postgres)
}
