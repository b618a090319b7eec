use ratchet_core::{JobFailure, jobs};

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    fn run(&self) -> Result<(), JobFailure> {
        Ok(())
    }
}

fn main() {}
