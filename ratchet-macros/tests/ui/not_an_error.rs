use ratchet_core::jobs;

struct Service;

#[derive(Debug)]
struct Unknown;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    async fn run(&self) -> Result<(), Unknown> {
        Ok(())
    }
}

fn main() {}
