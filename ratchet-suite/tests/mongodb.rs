//! The engine on the MongoDB store.

use ratchet_suite::test_store;

fn main() -> std::process::ExitCode {
    let code = ratchet_suite::run(test_store::mongodb);
    test_store::drop_mongodb();
    code
}
