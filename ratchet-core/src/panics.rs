//! Reports of panics in jobs and lifecycle hooks: which one, where, and its text without secrets.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::{self, PanicHookInfo};
use std::sync::mpsc;
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::{JobFailure, JobId, Sanitized};

use crate::JobContext;
use crate::task::panicked;

/// How long a sanitizer may take with the text of a panic. The first text costs more than others, since patterns are
/// compiled for it, and a busy machine makes that seconds.
const SANITIZING: Duration = Duration::from_secs(10);

tokio::task_local! {
    static PANICKING: PanicReport;
}

/// The context for the report of a panic in foreign code.
#[derive(Clone)]
pub(crate) struct PanicReport {
    whose: Whose,
    sanitizer: Arc<dyn ErrorSanitizer>,
}

#[derive(Clone, Copy)]
enum Whose {
    Job(JobId),
    Hook,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(id) => write!(f, "job {id}"),
            Self::Hook => f.write_str("a lifecycle hook"),
        }
    }
}

impl PanicReport {
    pub(crate) const fn of_job(job: JobId, sanitizer: Arc<dyn ErrorSanitizer>) -> Self {
        Self { whose: Whose::Job(job), sanitizer }
    }

    pub(crate) const fn of_hook(sanitizer: Arc<dyn ErrorSanitizer>) -> Self {
        Self { whose: Whose::Hook, sanitizer }
    }

    /// Runs a future whose panics are reported in this way.
    pub(crate) async fn scope<F: Future>(self, future: F) -> F::Output {
        PANICKING.scope(self, future).await
    }

    /// The report of the job or hook that the current code belongs to.
    fn current() -> Option<Self> {
        let body = JobContext::try_current().map(|ctx| ctx.panic_report());
        body.or_else(|| PANICKING.try_with(Clone::clone).ok())
    }

    /// Prints a panic to stderr, as the standard hook does, but sanitized and on one line.
    #[expect(clippy::print_stderr, reason = "it stands in for the standard hook, which prints there")]
    fn print(self, info: &PanicHookInfo<'_>) {
        let whose = self.whose;
        let text = self.sanitized(panicked(info.payload()));
        let text = text.map_or_else(|| "its text cannot be sanitized".to_owned(), |text| text.to_string());
        let thread = thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        eprintln!("thread '{name}' panicked at {place} in {whose}: {text}");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            eprintln!("{backtrace}");
        }
    }

    /// The text without secrets. It is sanitized on another thread, since a sanitizer that panics inside of a hook
    /// would end the process, and one that waits for a lock of the panicking thread would wait for ever.
    fn sanitized(self, failure: JobFailure) -> Option<Sanitized> {
        let (tell, told) = mpsc::channel();
        let sanitize = move || tell.send(Sanitized::new(&*self.sanitizer, &failure));
        thread::Builder::new().name("ratchet-panic".to_owned()).spawn(sanitize).ok()?;
        told.recv_timeout(SANITIZING).ok()
    }
}

/// Installs a panic hook that prints no secret of a job or a lifecycle hook. A panic hook that was set before is called
/// as before, with the panic unchanged; the standard one only for other panics, since it prints their text.
pub(crate) fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // The second is surely the standard hook: after the first call none is set.
        let (previous, standard) = (panic::take_hook(), panic::take_hook());
        let prints = std::ptr::eq(&raw const *previous, &raw const *standard);
        panic::set_hook(Box::new(move |info| match PanicReport::current() {
            Some(report) if prints => report.print(info),
            _ => previous(info),
        }));
    });
}

#[cfg(test)]
mod tests;
