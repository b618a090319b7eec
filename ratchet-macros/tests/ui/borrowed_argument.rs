use ratchet_core::{JobFailure, jobs};

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    async fn run(&self, _name: &str) -> Result<(), JobFailure> {
        Ok(())
    }
}

fn main() {}
