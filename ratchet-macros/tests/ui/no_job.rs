use ratchet_core::jobs;

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    async fn run(&self) {}
}

fn main() {}
