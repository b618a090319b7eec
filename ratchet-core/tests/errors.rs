//! The errors that a job may return, whose advice is followed wherever it is hidden.

use std::error::Error;
use std::fs::File;
use std::io;
use std::time::Duration;

use anyhow::Context as _;
use ratchet_core::{
    Backoff, Call, JobContext, JobError, JobFailure, Ratchet, RetryAdvice, Scheduler, job, jobs,
};
use ratchet_store_memory::MemoryStore;

/// An error that no job returns as it is.
#[derive(Debug, thiserror::Error, JobError)]
#[error("card declined")]
#[do_not_retry("declined by the issuer")]
struct Declined;

/// An error that asks for a delay.
#[derive(Debug, thiserror::Error)]
#[error("busy")]
struct Busy;

impl JobError for Busy {
    fn retry_advice(&self) -> RetryAdvice {
        RetryAdvice::After(Duration::from_secs(3_600))
    }
}

/// An error without advice about a retry.
#[derive(Debug, thiserror::Error)]
#[error("over")]
struct Over<E: Error + 'static>(#[source] E);

/// An error with the usual advice, and a source with more.
#[derive(Debug, thiserror::Error, JobError)]
#[error("under way")]
struct UnderWay(#[source] Declined);

/// An error that is known because another one is made from it.
#[derive(Debug, thiserror::Error, JobError)]
#[error("no such account")]
#[do_not_retry("the account is closed")]
struct Closed;

#[derive(Debug, thiserror::Error, JobError)]
enum BankError {
    #[error("the bank says no")]
    Closed(#[from] Closed),
    #[error("the bank does not answer")]
    Silent,
}

struct Till;

#[jobs(target = "till")]
impl Till {
    #[job]
    async fn plain_anyhow(&self) -> anyhow::Result<()> {
        anyhow::bail!("no luck")
    }

    #[job]
    async fn anyhow_around(&self) -> anyhow::Result<()> {
        Err(Declined).context("charging").context("order 7")
    }

    #[job]
    async fn anyhow_of(&self) -> anyhow::Result<()> {
        Err(Declined)?;
        Ok(())
    }

    #[job]
    async fn anyhow_failure(&self) -> Result<(), anyhow::Error> {
        let gone = JobFailure::new("Gone", "no such customer").do_not_retry("it was deleted");
        Err(gone.into_error()).context("writing to it")
    }

    #[job]
    async fn anyhow_of_bank(&self) -> anyhow::Result<()> {
        Err(Closed).context("asking the bank")
    }

    #[job]
    async fn boxed(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err(Box::new(Over(Declined)))
    }

    #[job]
    async fn plain_boxed(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err("no luck".into())
    }

    #[job]
    async fn plain(&self) -> io::Result<()> {
        File::open("/nowhere/at/all").map(drop)
    }

    #[job]
    async fn around(&self) -> Result<(), Over<Declined>> {
        Err(Over(Declined))
    }

    #[job]
    async fn in_io(&self) -> io::Result<()> {
        Err(io::Error::other(Declined))
    }

    #[job]
    async fn by_question_mark(&self) -> Result<(), JobFailure> {
        Err(Over(Declined))?;
        Ok(())
    }

    #[job]
    async fn source_of_a_job_error(&self) -> Result<(), UnderWay> {
        Err(UnderWay(Declined))
    }

    #[job]
    async fn bank(&self, silent: bool) -> Result<(), BankError> {
        Err(if silent { BankError::Silent } else { Closed.into() })
    }

    #[job(blocking)]
    fn blocking(&self) -> anyhow::Result<()> {
        Err(Declined.into())
    }

    #[job]
    async fn busy(&self) -> anyhow::Result<()> {
        Err(Busy).context("asking")
    }

    #[job]
    async fn between(&self, a: u32, ctx: &JobContext, b: u32) -> anyhow::Result<u32> {
        Ok(a * 10 + b + ctx.attempt() * 100)
    }

    #[job]
    async fn last(&self, a: u32, ctx: JobContext) -> anyhow::Result<u32> {
        Ok(a + ctx.attempt() * 100)
    }
}

#[job(target = "till")]
async fn free(order: u32, ctx: &JobContext) -> anyhow::Result<()> {
    ctx.info("will fail");
    Err(Declined).with_context(|| format!("order {order}"))
}

async fn scheduler() -> Scheduler {
    let builder = Ratchet::builder(MemoryStore::new()).register(Till).function::<free>();
    let builder = builder.allow(["till"]).heed::<Declined>().heed::<Busy>().configure(|options| {
        options.retry.max_retries = 1;
        options.retry.backoff = Backoff::Fixed(Duration::from_millis(1));
    });
    builder.start().await.expect("it starts")
}

/// How often it ran, and with which class and message it failed in the end.
async fn end(scheduler: &Scheduler, call: Call<()>) -> (usize, String, String) {
    let job = scheduler.enqueue(call).submit().await.expect("stored");
    job.ended().await.expect("it ends");
    let ran = scheduler.client().store().executions(job.id()).await.expect("history is kept");
    let last = ran.last().expect("it ran");
    (ran.len(), last.error_class.clone().expect("it failed"), last.error.clone().expect("it failed"))
}

// shows: S92
#[tokio::test]
async fn advice_is_followed_wherever_it_is_hidden() {
    let scheduler = scheduler().await;
    let till = Till::job();
    for (call, times, class, message) in [
        (till.plain_anyhow(), 2, "Error", "no luck"),
        (till.anyhow_around(), 1, "Declined", "order 7"),
        (till.anyhow_of(), 1, "Declined", "card declined"),
        (till.anyhow_failure(), 1, "Gone", "writing to it"),
        (till.anyhow_of_bank(), 1, "Closed", "asking the bank"),
        (till.boxed(), 1, "Declined", "over"),
        (till.plain_boxed(), 2, "Error", "no luck"),
        (till.plain(), 2, "Error", "No such file or directory"),
        (till.around(), 1, "Over", "over"),
        (till.in_io(), 1, "Error", "card declined"),
        (till.by_question_mark(), 1, "Over", "over"),
        (till.source_of_a_job_error(), 1, "UnderWay", "under way"),
        (till.bank(false), 1, "BankError", "the bank says no"),
        (till.bank(true), 2, "BankError", "the bank does not answer"),
        (till.blocking(), 1, "Declined", "card declined"),
        (free::job(7), 1, "Declined", "order 7"),
    ] {
        let shown = format!("{:?}", call.invocation().expect("it can be stored"));
        let (ran, failed, said) = end(&scheduler, call).await;
        assert_eq!((ran, failed.as_str()), (times, class), "{shown}: {said}");
        assert!(said.contains(message), "{shown}: {said}");
    }
    scheduler.stop().await;
}

// shows: S92
#[tokio::test]
async fn a_delay_that_a_hidden_error_asks_for_is_kept() {
    let scheduler = scheduler().await;
    let job = scheduler.enqueue(Till::job().busy()).submit().await.expect("stored");
    let due = loop {
        let found = job.job().await.expect("read").expect("there");
        if found.attempts == 1 {
            break found.scheduled_time;
        }
        tokio::task::yield_now().await;
    };
    let now = scheduler.client().store().database_time().await.expect("it has a clock");
    assert!(due.since(now) > Duration::from_secs(3_000), "due in {:?}", due.since(now));
    scheduler.stop().await;
}

#[tokio::test]
async fn the_context_stands_anywhere_among_the_arguments() {
    let scheduler = scheduler().await;
    let between = scheduler.enqueue(Till::job().between(4, 2)).submit().await.expect("stored");
    let last = scheduler.enqueue(Till::job().last(7)).submit().await.expect("stored");
    assert_eq!((between.result().await.expect("runs"), last.result().await.expect("runs")), (142, 107));
    scheduler.stop().await;
}
