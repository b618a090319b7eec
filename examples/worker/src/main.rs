//! A process that runs jobs until it is told to stop, as under systemd or Kubernetes, and answers readiness probes.
//! SIGTERM lets running jobs end; a second one does not.
//!
//! `cargo run -p worker -- jobs.db`

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ratchet_core::{JobContext, JobFailure, Ratchet, Scheduler, jobs};
use ratchet_store_sqlite::SqliteStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Reports;

#[jobs(target = "shop.Reports")]
impl Reports {
    /// Takes the given number of steps, and gives up between two of them when its node will not wait any longer.
    #[job]
    async fn write(&self, ctx: &JobContext, steps: u64) -> Result<(), JobFailure> {
        println!("writing");
        for step in 0..steps {
            if ctx.is_canceled() {
                println!("interrupted");
                return Ok(());
            }
            ctx.progress(step, steps, None).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("written");
        Ok(())
    }

    /// Runs without an end, and leaves the rest to another node as soon as its own starts to stop.
    #[job]
    async fn watch(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        println!("watching");
        ctx.draining().await;
        println!("let go");
        Err(JobFailure::snooze(Duration::ZERO))
    }
}

/// Serves probes like any other server: when it is told to stop, it first answers the connected clients.
async fn answer_probes(probes: TcpListener, scheduler: &Scheduler) -> io::Result<()> {
    loop {
        tokio::select! {
            () = scheduler.draining() => return Ok(()),
            probe = probes.accept() => answer(probe?.0, scheduler).await?,
        }
    }
}

async fn answer(mut probe: TcpStream, scheduler: &Scheduler) -> io::Result<()> {
    // The first line is enough.
    if probe.read(&mut [0; 1_024]).await? > 0 {
        let status = if scheduler.readiness().takes_work() { "200 OK" } else { "503 Service Unavailable" };
        probe.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("jobs.db"), PathBuf::from);
    let scheduler = Ratchet::builder(SqliteStore::open(file).await?)
        .register(Reports)
        .allow(["shop."])
        .configure(|options| options.execution.queue("default").slots = 1)
        .start()
        .await?;
    let probes = TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", probes.local_addr()?);
    match scheduler.serve_until_signal(answer_probes(probes, &scheduler)).await? {
        Some(answered) => answered?,
        None => println!("hurried"),
    }
    println!("stopped");
    Ok(())
}
