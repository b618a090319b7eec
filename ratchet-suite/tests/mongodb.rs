//! The engine on a store: mongodb.

use ratchet_suite::place;

fn main() -> std::process::ExitCode {
    let code = ratchet_suite::run(place::mongodb);
    place::drop_mongodb();
    code
}
