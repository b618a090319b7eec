use ratchet_core::jobs;

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    async fn run(&self) -> u32 {
        1
    }
}

fn main() {}
