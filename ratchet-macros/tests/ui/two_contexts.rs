use ratchet_core::{JobContext, jobs};

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    async fn run(&self, _: &JobContext, _user: u64, _: JobContext) {}
}

fn main() {}
