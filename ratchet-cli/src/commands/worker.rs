//! `ratchet worker`: a node of the small shop, on any store.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_core::{Ratchet, Readiness, Scheduler};
use tokio::time::{MissedTickBehavior, interval};

use super::screen::Screen;
use super::shop::{Kitchen, Mail, Till};
use crate::output::progress;
use crate::store::StoreArgs;

/// `ratchet worker`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet migrate --url shop.db
  ratchet worker --url shop.db --rate 5       # runs jobs, and submits five of them a second
  ratchet worker --url shop.db                # in another terminal: runs jobs only
  ratchet nodes --url shop.db                 # in a third one: both of them")]
pub(crate) struct Arguments {
    /// Submit N jobs per second
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    rate: f64,

    /// The label of this node [default: host name and process id]
    #[arg(long, value_name = "NAME")]
    label: Option<String>,

    /// Run at most N jobs at once
    #[arg(long, value_name = "N", default_value_t = 10)]
    slots: u32,

    /// The lease: if this node is killed, others take over its jobs after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease: u64,
}

/// The most letters sent at once in the whole cluster.
const LETTERS_AT_ONCE: u32 = 4;

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs) -> Result<ExitCode> {
    ensure!((0.0..=10_000.0).contains(&arguments.rate), "--rate is a number from 0 to 10000");
    let screen = Screen::default();
    let scheduler = start(arguments, place, &screen).await?;
    screen.say(&format!(
        "{} works. Ctrl-C ends it in good order; kill -9 shows what the others do.",
        scheduler.owner()
    ));
    tokio::select! {
        ended = scheduler.run_until_signal() => ended?,
        submitted = submit(&scheduler, arguments.rate) => {
            scheduler.stop().await;
            submitted?;
        }
    }
    screen.say("It has stopped.");
    Ok(ExitCode::SUCCESS)
}

async fn start(arguments: &Arguments, place: &StoreArgs, screen: &Screen) -> Result<Scheduler> {
    let Arguments { label, slots, lease, .. } = arguments;
    let builder = Ratchet::builder_shared(place.connect(4).await?)
        .register(Till::default())
        .register(Kitchen)
        .register(Mail)
        .allow(["shop."])
        .resource("smtp", LETTERS_AT_ONCE)
        .listener(screen.clone())
        .configure(|options| {
            options.retry.permit_delay = Duration::from_millis(500);
            options.execution.queue("default").slots = *slots;
            options.node.label.clone_from(label);
            options.node.lease = Duration::from_secs(*lease);
            options.node.beat = options.node.lease / 6;
            options.node.recovery_interval = options.node.beat;
        });
    Ok(builder.start().await?)
}

/// Submits orders at `rate` until the shop closes. Never returns if the rate is zero.
async fn submit(scheduler: &Scheduler, rate: f64) -> Result<()> {
    if rate <= 0.0 {
        return std::future::pending().await;
    }
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u32.. {
        ticks.tick().await;
        if scheduler.readiness() >= Readiness::Draining {
            break;
        }
        if let Err(error) = order(scheduler, number).await {
            // The database may be down for a while; the node keeps running as well.
            progress(&format!("an order was not stored: {error}"));
        }
    }
    std::future::pending().await
}

async fn order(scheduler: &Scheduler, number: u32) -> Result<()> {
    let customer = format!("customer {}", number % 50);
    match number % 4 {
        0 => drop(scheduler.enqueue(Kitchen::job().bake(format!("cake {number}"))).submit().await?),
        1 => drop(scheduler.enqueue(Mail::job().letter(number)).submit().await?),
        _ => {
            let sum = if number % 30 == 3 { 999 } else { number % 90 + 5 };
            let payment = scheduler.enqueue(Till::job().charge(customer, sum));
            payment.on_success(&Mail::job().receipt()).submit().await?;
        }
    }
    Ok(())
}
