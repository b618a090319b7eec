//! Project commands: `cargo xtask --help`.

fn main() {}
