//! The other process: it runs the commands on its input, line by line, and reports when it did.
//!
//! | line | what it does | what it says |
//! |---|---|---|
//! | `submit COUNT RATE` | submits COUNT jobs, RATE per second | id and time of each commit |
//! | `insert COUNT RATE` | the same by hand: insert, `NOTIFY` | the same |
//! | `cancel ID` | cancels a job | id, and the time before |
//!
//! After each command it prints `done`. It ends with its input.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use ratchet_api::{JobId, StoreClock};
use ratchet_core::{Client, Ratchet};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::WakeSender;
use crate::job::{Invoice, call};
use crate::store::{Bench, TestDatabase};

const DONE: &str = "done";

/// The present time, by the clock that both processes read.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A handle on the other process.
pub(super) struct Peer {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    pub(super) fn start(bench: &dyn Bench, place: &dyn TestDatabase) -> Result<Self> {
        let address = place.address().context("another process cannot open this store")?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["latency-peer", "--store", bench.name(), "--place", &address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().context("it has an input")?;
        let output = process.stdout.take().context("it has an output")?;
        Ok(Self { process, input, output: BufReader::new(output).lines() })
    }

    /// Sends a command and returns the times that it reports.
    pub(super) async fn does(&mut self, what: &str) -> Result<Vec<(JobId, Duration)>> {
        self.input.write_all(format!("{what}\n").as_bytes()).await?;
        let mut told = Vec::new();
        loop {
            let line = self.output.next_line().await?.context("the other process has ended")?;
            if line == DONE {
                return Ok(told);
            }
            let (id, nanos) = line.split_once(' ').context("a word is missing")?;
            told.push((id.parse()?, Duration::from_nanos(nanos.parse()?)));
        }
    }

    pub(super) async fn end(mut self) -> Result<()> {
        drop(self.input);
        self.process.wait().await?;
        Ok(())
    }
}

/// Runs as the other process.
pub(crate) async fn run(bench: &dyn Bench, address: &str) -> Result<()> {
    let place = bench.place_at(address)?;
    let client =
        Ratchet::builder_shared(place.connect(StoreClock::Server, 2).await?).allow(["billing."]).client()?;
    let mut sender = None;
    // Reading blocks this thread only: the runtime has threads of its own.
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["submit", count, rate] => submit(&client, count.parse()?, rate.parse()?).await?,
            ["insert", count, rate] => {
                let sender = match &mut sender {
                    Some(sender) => sender,
                    none => none.insert(place.wake_sender().await?.context("there is no probe")?),
                };
                insert(sender.as_mut(), count.parse()?, rate.parse()?).await?;
            }
            ["cancel", id] => cancel(&client, id.parse()?).await?,
            _ => bail!("{line}: nobody knows what that means"),
        }
        println!("{DONE}");
    }
    client.close().await;
    Ok(())
}

async fn submit(client: &Client, count: u32, rate: f64) -> Result<()> {
    let pace = Pace::new(rate);
    for at in 0..count {
        pace.turn(at).await;
        let job = client.enqueue(call(&Invoice::sample())).submit().await?;
        say(job.id(), now());
    }
    Ok(())
}

async fn insert(sender: &mut dyn WakeSender, count: u32, rate: f64) -> Result<()> {
    let pace = Pace::new(rate);
    for at in 0..count {
        pace.turn(at).await;
        let job = sender.insert().await?;
        let committed = now();
        sender.notify().await?;
        say(job, committed);
    }
    Ok(())
}

async fn cancel(client: &Client, job: JobId) -> Result<()> {
    let asked = now();
    client.cancel(job, "measured").await?;
    say(job, asked);
    Ok(())
}

fn say(job: JobId, at: Duration) {
    println!("{job} {}", at.as_nanos());
}

/// A timer that ticks at a rate, never in step with anything.
struct Pace {
    begun: Instant,
    gap: Duration,
}

impl Pace {
    fn new(rate: f64) -> Self {
        Self { begun: Instant::now(), gap: Duration::from_secs_f64(1.0 / rate) }
    }

    async fn turn(&self, at: u32) {
        let due = self.begun + self.gap * at + self.gap.mul_f64(rand::random());
        tokio::time::sleep_until(due.into()).await;
    }
}
