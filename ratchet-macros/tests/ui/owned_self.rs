use ratchet_core::jobs;

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    async fn run(&mut self) {}
}

fn main() {}
