//! Output of maintenance.

use std::fmt;

use ratchet_core::maintenance::{Ran, Task};
use serde::Serialize;

/// The results of tasks.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Runs {
    pub(crate) tasks: Vec<TaskRun>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct TaskRun {
    task: &'static str,
    /// `done`, `busy` (another node runs it), `lost` (the lock was lost on the way) or `stopped`.
    outcome: &'static str,
    /// The number of rows moved or deleted.
    rows: u64,
    #[serde(skip)]
    pub(crate) ran: Ran,
    #[serde(skip)]
    verb: &'static str,
}

impl TaskRun {
    pub(crate) fn of(task: Task, ran: Ran) -> Self {
        let (outcome, rows) = match ran {
            Ran::Done { rows } => ("done", rows),
            Ran::Lost { rows } => ("lost", rows),
            Ran::Stopped { rows } => ("stopped", rows),
            _ => ("busy", 0),
        };
        Self { task: task.name(), outcome, rows, ran, verb: task.verb() }
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for TaskRun { task, outcome, rows, verb, .. } in &self.tasks {
            let end = match *outcome {
                "busy" => "nothing was done: another node is at it; try again later".to_owned(),
                "lost" => format!("{rows} {verb}; then the lock was lost, so another node may be at it"),
                "stopped" => format!("{rows} {verb}; then it was stopped"),
                _ => format!("{rows} {verb}"),
            };
            writeln!(f, "{task:<13}  {end}")?;
        }
        Ok(())
    }
}
