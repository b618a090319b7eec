//! Captures the notices that PostgreSQL sends beside its replies: the driver passes them on to `tracing`.

use std::fmt::Debug;
use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const TARGET: &str = "sqlx::postgres::notice";

/// The captured notices; `None` while nothing is captured.
static HEARD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Runs `work` and returns the notices of the server meanwhile.
pub(crate) async fn during<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| {
        tracing::subscriber::set_global_default(Listener).expect("nothing else subscribes in this program");
    });
    *heard() = Some(Vec::new());
    let done = work.await;
    (done, heard().take().unwrap_or_default())
}

fn heard() -> std::sync::MutexGuard<'static, Option<Vec<String>>> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }

    fn event(&self, event: &Event<'_>) {
        if let Some(heard) = heard().as_mut() {
            let mut message = Message::default();
            event.record(&mut message);
            heard.push(message.0);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0.push_str(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.push_str(&format!("{value:?}"));
        }
    }
}
