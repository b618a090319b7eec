//! Output of commands: tables for people, one JSON document for programs.

pub(crate) mod dead_letter;
pub(crate) mod escape;
pub(crate) mod explain;
pub(crate) mod job;
pub(crate) mod maintenance;
pub(crate) mod many;
pub(crate) mod migration;
pub(crate) mod node;
pub(crate) mod queue;
pub(crate) mod resource;
pub(crate) mod story;
mod table;
mod time;

pub(crate) use table::Table;
pub(crate) use time::{Instant, span};

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::{Error, Result};
use ratchet_api::{JobFailure, Sanitized};
use ratchet_core::defaults::DefaultErrorSanitizer;
use serde::Serialize;

/// The output format.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,
}

impl Output {
    /// Prints the result of a command.
    pub(crate) fn show(self, report: &(impl Serialize + Display)) -> Result<()> {
        let text = if self.json {
            escape::json(&serde_json::to_string_pretty(report)?) + "\n"
        } else {
            escape::text(&report.to_string())
        };
        let mut screen = io::stdout().lock();
        match screen.write_all(text.as_bytes()).and_then(|()| screen.flush()) {
            // The reader closed the pipe, as in `ratchet jobs list | head`.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
}

/// Prints the progress of a long command, on standard error.
pub(crate) fn progress(text: &str) {
    // A closed standard error does not stop the command.
    let _ = writeln!(io::stderr(), "{}", escape::text(text));
}

/// Prints why a command failed.
pub(crate) fn failure(error: &Error) -> ExitCode {
    progress(&without_secrets(&format!("error: {}", reasons(error))));
    ExitCode::FAILURE
}

/// Prints the error in the arguments, or the requested help.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let safe = without_secrets(&text);
    // An error would repeat a URL in the wrong place with its password.
    if error.use_stderr() && safe != text.trim_end() {
        progress(&safe);
    } else {
        // A closed standard error is not a failure.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
}

/// The error and its causes, each text once: many errors repeat their cause.
fn reasons(error: &Error) -> String {
    let mut text = String::new();
    for reason in error.chain().map(ToString::to_string).filter(|reason| !reason.is_empty()) {
        if text.is_empty() {
            text = reason;
        } else if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
    }
    text
}

/// Removes passwords from URLs, as a last line of defence: no command puts a URL into an error.
fn without_secrets(text: &str) -> String {
    let failure = JobFailure::new("", text.trim_end());
    Sanitized::new(&DefaultErrorSanitizer::default(), &failure).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once() {
        let error = anyhow::anyhow!("no route").context("cannot connect: no route").context("open");
        assert_eq!(reasons(&error), "open: cannot connect: no route");
    }

    #[test]
    fn a_url_in_an_error_loses_its_password() {
        let text = without_secrets("unexpected argument 'postgres://me:s3cret@db/app' found\n");
        assert_eq!(text, "unexpected argument 'postgres://[REDACTED]@db/app' found");
    }
}
