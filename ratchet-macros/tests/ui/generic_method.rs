use ratchet_core::{JobFailure, jobs};

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    async fn run<T>(&self, _value: T) -> Result<(), JobFailure> {
        Ok(())
    }
}

fn main() {}
