//! The engine on a store: postgres.

fn main() -> std::process::ExitCode {
    ratchet_suite::run(ratchet_suite::place::postgres)
}
