//! A long job that reports its progress and can be canceled.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::{JobContext, JobFailure, JobHandle, Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;
use tokio::sync::Notify;

#[derive(Default)]
struct Films {
    begun: Notify,
}

#[jobs(target = "films.Films")]
impl Films {
    #[job(timeout = "1h")]
    async fn encode(&self, ctx: &JobContext, film: String) -> Result<(), JobFailure> {
        for minute in 1..=90 {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {} // the work
                () = ctx.canceled() => {
                    println!("{film}: stopped, the half-written file is removed");
                    return Ok(());
                }
            }
            ctx.progress(minute, 90, format!("minute {minute}")).await;
        }
        Ok(())
    }

    /// A blocking body runs on a thread of its own, and checks for cancellation from time to time.
    #[job(blocking)]
    fn checksum(&self, ctx: &JobContext, reel: u32) -> Result<(), JobFailure> {
        self.begun.notify_one();
        while !ctx.is_canceled() {
            std::thread::sleep(Duration::from_millis(5));
        }
        println!("reel {reel}: no checksum");
        Ok(())
    }
}

/// Waits until a job has reported progress.
async fn under_way(job: &JobHandle<()>) -> Result<u64, Box<dyn std::error::Error>> {
    loop {
        let job = job.job().await?.ok_or("the job is gone")?;
        match job.progress {
            Some(progress) if progress.done >= 3 => return Ok(progress.total.unwrap_or_default()),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let films = Arc::new(Films::default());
    let scheduler = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Arc::clone(&films))
        .allow(["films."])
        .start()
        .await?;

    let film = scheduler.enqueue(Films::job().encode("Metropolis".to_owned())).submit().await?;
    println!("under way, {} minutes in all", under_way(&film).await?);
    let accepted = scheduler.client().cancel(film.id(), "the wrong film").await?;
    let ended = film.ended().await?;
    println!("accepted: {accepted}; {}: {}", ended.status, ended.cancel_reason.unwrap_or_default());
    println!("accepted again: {}", scheduler.client().cancel(film.id(), "once more").await?);

    // A job that has not started is canceled at once. Paused, it waits until it is resumed.
    let later = scheduler.enqueue(Films::job().encode("Nosferatu".to_owned()));
    let later = later.delay(Duration::from_secs(3600)).submit().await?;
    println!("paused: {}", scheduler.client().pause(later.id()).await?);
    scheduler.client().cancel(later.id(), "nobody wants it").await?;
    println!("{}", later.ended().await?.status);

    let checksum = scheduler.enqueue(Films::job().checksum(1)).submit().await?;
    films.begun.notified().await;
    scheduler.client().cancel(checksum.id(), "enough").await?;
    println!("{}", checksum.ended().await?.status);
    scheduler.stop().await;
    Ok(())
}
