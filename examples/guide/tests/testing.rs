//! Tests of an application that uses jobs: no server, no waiting, and time that the test moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::{Client, JobContext, JobFailure, JobHandle, JobStatus, SubmitError, jobs};
use ratchet_testing::TestKit;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

// The application.

#[derive(Default)]
struct Mailer {
    sent: Mutex<Vec<String>>,
}

#[jobs(target = "mail.Mailer")]
impl Mailer {
    #[job(max_retries = 3, backoff = "exponential 1h")]
    async fn welcome(&self, ctx: &JobContext, user: String) -> Result<(), JobFailure> {
        if user.is_empty() {
            return Err(JobFailure::new("NoAddress", "the user has no address"));
        }
        self.sent.lock().expect("nobody panics").push(format!("welcome {user}"));
        ctx.enqueue(Mailer::job().remind(user)).delay(7 * DAY).submit().await?;
        Ok(())
    }

    #[job]
    async fn remind(&self, user: String) {
        self.sent.lock().expect("nobody panics").push(format!("remember us, {user}"));
    }
}

/// Submits a welcome mail. Such code takes a `&Client`: `scheduler.client()`, or `kit.client()` in a test.
async fn sign_up(jobs: &Client, user: &str) -> Result<JobHandle<()>, SubmitError> {
    jobs.enqueue(Mailer::job().welcome(user.to_owned()))
        .idempotency_key(format!("welcome {user}"))
        .submit()
        .await
}

// Its tests.

#[tokio::test]
async fn a_new_user_gets_a_welcome_and_a_reminder_after_a_week() {
    let mailer = Arc::new(Mailer::default());
    let kit = TestKit::start(|node| node.register(Arc::clone(&mailer))).await.expect("the kit starts");

    sign_up(kit.client(), "ada").await.expect("stored");
    kit.assert_enqueued(&Mailer::job().welcome("ada".to_owned())).await;
    assert_eq!(kit.run_due().await.expect("it runs"), 1); // runs what is due, and nothing else

    kit.assert_enqueued(&Mailer::job().remind("ada".to_owned())).await;
    kit.advance(6 * DAY);
    assert_eq!(kit.run_due().await.expect("it runs"), 0);
    kit.advance(DAY);
    assert_eq!(kit.run_due().await.expect("it runs"), 1);
    assert_eq!(*mailer.sent.lock().expect("nobody panics"), ["welcome ada", "remember us, ada"]);
}

#[tokio::test]
async fn a_user_without_an_address_is_a_dead_letter_after_four_attempts() {
    let kit = TestKit::start(|node| node.register(Mailer::default())).await.expect("the kit starts");
    let job = sign_up(kit.client(), "").await.expect("stored");
    let begun = kit.now();
    assert_eq!(kit.run_all().await.expect("it runs"), 4); // travels from due time to due time
    assert_eq!(job.ended().await.expect("it ended").status, JobStatus::Failed);
    assert!(kit.now().since(begun) > Duration::from_secs(6 * 60 * 60)); // about 1 h, 2 h and 4 h later
}

#[tokio::test]
async fn a_body_is_an_ordinary_method() {
    let mailer = Mailer::default();
    mailer.remind("ada".to_owned()).await;
    assert_eq!(mailer.sent.lock().expect("nobody panics").len(), 1);
}
