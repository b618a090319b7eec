use ratchet_core::jobs;

struct Service;

#[jobs]
impl Service {
    #[job]
    async fn run(&self) {}
}

fn main() {}
