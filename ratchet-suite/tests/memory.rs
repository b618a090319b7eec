//! The engine on the memory store.

fn main() -> std::process::ExitCode {
    ratchet_suite::run(ratchet_suite::test_store::memory)
}
