//! A mistake in a job is reported, but not the uses of its service or its other jobs.

use ratchet_core::{JobContext, JobFailure, Ratchet, job, jobs};

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job(retries = 3)]
    async fn options(&self, ctx: &JobContext, number: u64) -> Result<u64, JobFailure> {
        Ok(number + u64::from(ctx.attempt()))
    }

    #[job]
    async fn borrowed(&self, text: &str) -> Result<usize, JobFailure> {
        Ok(text.len())
    }

    #[job(blocked)]
    fn blocking(&self) -> Result<(), JobFailure> {
        Ok(())
    }

    #[job]
    async fn generic<T: Clone + Send>(&self, thing: T) {
        drop(thing);
    }

    #[job(breaker_profile = "fast")]
    async fn no_breaker(&self) {}

    #[job]
    async fn good(&self) {}
}

struct Nameless;

#[jobs(targte = "a.Nameless")]
impl Nameless {
    #[job]
    async fn run(&self) {}
}

struct Jobless;

#[jobs(target = "a.Jobless")]
impl Jobless {
    async fn run(&self) {}
}

#[job(target = "a", retries = 3)]
pub async fn function(year: u16) -> Result<u16, JobFailure> {
    Ok(year)
}

fn main() {
    let _ = |store: std::sync::Arc<dyn ratchet_core::store::JobStore>| {
        Ratchet::builder_shared(store).register(Service).register(Nameless).register(Jobless).function::<function>()
    };
    let _ = Service::job().options(7);
    let _ = Service::job().borrowed("text");
    let _ = Service::job().blocking();
    let _ = Service::job().generic(7);
    let _ = Service::job().no_breaker();
    let _ = Service::job().good();
    let _ = Nameless::job().run();
    let _ = Jobless::job();
    let _ = function::job(2026);
}
