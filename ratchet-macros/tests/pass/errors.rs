use std::error::Error;

use ratchet_core::{JobContext, JobError, JobFailure, job, jobs};

#[derive(Debug, thiserror::Error)]
#[error("plain")]
struct Plain;

#[derive(Debug, thiserror::Error, JobError)]
#[error("advised")]
#[do_not_retry]
struct Advised(#[from] Plain);

type Outcome = Result<u64, Plain>;

struct Service;

#[jobs(target = "a.Service")]
impl Service {
    #[job]
    async fn anyhow(&self, user: u64, ctx: &JobContext, name: String) -> anyhow::Result<u64> {
        anyhow::ensure!(!name.is_empty(), "attempt {} of {user}", ctx.attempt());
        Ok(user)
    }

    #[job]
    async fn boxed(&self, user: u64, ctx: JobContext) -> Result<u64, Box<dyn Error + Send + Sync>> {
        ctx.info("last");
        Ok(user)
    }

    #[job]
    async fn plain(&self) -> Result<u64, Plain> {
        Outcome::Err(Plain)
    }

    #[job(blocking)]
    fn io(&self) -> std::io::Result<()> {
        Ok(())
    }

    #[job]
    async fn advised(&self) -> Result<(), Advised> {
        Err(Plain.into())
    }

    #[job]
    async fn failure(&self) -> Result<(), JobFailure> {
        Err(Plain)?;
        Ok(())
    }

    #[job]
    async fn never(&self) {}
}

#[job(target = "a.free")]
async fn free(user: u64, ctx: &JobContext) -> anyhow::Result<u64> {
    ctx.info("free");
    Ok(user)
}

fn main() {
    let _: ratchet_core::Call<u64> = Service::job().anyhow(7, "Ada".into());
    let _: ratchet_core::Call<u64> = free::job(7);
}
