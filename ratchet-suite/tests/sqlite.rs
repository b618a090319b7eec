//! The engine on a store: sqlite.

fn main() -> std::process::ExitCode {
    ratchet_suite::run(ratchet_suite::place::sqlite)
}
