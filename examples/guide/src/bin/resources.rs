//! A limit on the jobs that use a resource at once, in the whole cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::{Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;

#[derive(Default)]
struct Office {
    printing: AtomicUsize,
    most: AtomicUsize,
}

#[jobs(target = "office.Office")]
impl Office {
    #[job(resource = "printer")]
    async fn print(&self, page: u32) -> Result<usize, std::io::Error> {
        let _ = page;
        let now = self.printing.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.printing.fetch_sub(1, Ordering::SeqCst);
        Ok(self.most.load(Ordering::SeqCst))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Office::default())
        .allow(["office."])
        .resource("printer", 2) // written at start, for all nodes
        .start()
        .await?;

    let pages = scheduler.client().enqueue_many((1..=10).map(|page| Office::job().print(page))).await?;
    let mut most = 0;
    for page in pages {
        most = page?.result().await?.max(most);
    }
    println!("10 pages, never more than 2 at once: {}", most <= 2);

    // A resource without a limit: the job is parked until there is one. It does not become a dead letter.
    let job = scheduler.enqueue(Office::job().print(11)).resource("plotter").submit().await?;
    let parked_on = loop {
        match job.job().await?.and_then(|job| job.parked_on) {
            Some(parked_on) => break parked_on,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    println!("page 11 is parked on {parked_on}");
    scheduler.client().cancel(job.id(), "there is no plotter").await?;

    scheduler.stop().await;
    Ok(())
}
