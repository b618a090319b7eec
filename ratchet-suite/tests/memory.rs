//! The engine on a store: memory.

fn main() -> std::process::ExitCode {
    ratchet_suite::run(ratchet_suite::place::memory)
}
