//! The maintenance tasks, and the parts in which they are done.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ratchet_api::options::{ArchiveOptions, MaintenanceOptions, OptionsError, PurgeOptions};
use ratchet_api::store::{JobStore, Retention};
use ratchet_api::{InvalidName, LockName, StoreResult, Timestamp};

use crate::schedule::CronSchedule;

/// The most rows that one statement deletes.
const CHUNK: usize = 1_000;

/// A maintenance task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Task {
    /// Moves ended jobs into the archive.
    Archive,
    /// Deletes archived jobs.
    ArchivePurge,
    /// Deletes dead letters.
    DlqPurge,
    /// Deletes lines of job logs.
    LogPurge,
    /// Deletes rows of nodes that died and hold no job.
    NodePurge,
}

/// The error for a name that no task has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no task `{0}`; there are archive, archive-purge, dlq-purge, log-purge and node-purge")]
pub struct UnknownTask(String);

impl Task {
    /// All tasks.
    pub const ALL: [Self; 5] =
        [Self::Archive, Self::ArchivePurge, Self::DlqPurge, Self::LogPurge, Self::NodePurge];

    /// Its name in commands and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::ArchivePurge => "archive-purge",
            Self::DlqPurge => "dlq-purge",
            Self::LogPurge => "log-purge",
            Self::NodePurge => "node-purge",
        }
    }

    /// The word for its effect on a row, for messages.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Archive => "archived",
            _ => "deleted",
        }
    }

    /// The lock of the node that runs it.
    ///
    /// # Errors
    /// Never: the name is short.
    pub fn lock(self) -> Result<LockName, InvalidName> {
        LockName::new(format!("maintenance:{self}"))
    }

    /// The lock that, once the task is done, stays taken until it is due again.
    pub(super) fn done_lock(self) -> Result<LockName, InvalidName> {
        LockName::new(format!("maintenance:{self}:done"))
    }

    /// Whether it is enabled, and its cron expression.
    pub(super) fn timetable(self, options: &MaintenanceOptions) -> (bool, &str) {
        match self.purge(options) {
            Some(PurgeOptions { enabled, cron, .. }) => (*enabled, cron),
            None => (options.archive.enabled, &options.archive.cron),
        }
    }

    const fn purge(self, options: &MaintenanceOptions) -> Option<&PurgeOptions> {
        match self {
            Self::Archive => None,
            Self::ArchivePurge => Some(&options.archive_purge),
            Self::DlqPurge => Some(&options.dlq_purge),
            Self::LogPurge => Some(&options.log_purge),
            Self::NodePurge => Some(&options.node_purge),
        }
    }

    /// Runs one part; returns its number of rows and whether there may be more.
    pub(super) async fn chunk(
        self,
        store: &dyn JobStore,
        options: &MaintenanceOptions,
    ) -> StoreResult<(u64, bool)> {
        let limit = if self == Self::Archive { options.archive.batch_size as usize } else { CHUNK };
        let rows = match self {
            Self::Archive => store.archive(&retention(options), limit).await?,
            Self::ArchivePurge => store.purge_archive(options.archive_purge.retention, limit).await?,
            Self::DlqPurge => store.purge_dead_letters(options.dlq_purge.retention, limit).await?,
            Self::LogPurge => store.purge_logs(options.log_purge.retention, limit).await?,
            // There are never many nodes.
            Self::NodePurge => return Ok((store.purge_nodes(options.node_purge.retention).await?, false)),
        };
        Ok((rows, rows >= limit as u64))
    }
}

/// The ages at which jobs are archived. A dead letter must stay open for a manual retry as long as it is kept as one.
fn retention(MaintenanceOptions { archive, dlq_purge, .. }: &MaintenanceOptions) -> Retention {
    Retention { ended: archive.retention, failed: archive.retention.max(dlq_purge.retention) }
}

/// Refuses invalid cron expressions, also of disabled tasks.
pub(crate) fn check(options: &MaintenanceOptions) -> Result<(), OptionsError> {
    let now = Timestamp::node_now();
    let wrong = |task: Task| {
        let (_, cron) = task.timetable(options);
        let error = CronSchedule::parse(cron, now).err()?;
        let option = format!("maintenance.{}.cron", task.name().replace('-', "_"));
        let allowed = format!("a cron expression ({error})");
        Some(OptionsError::NotAllowed { option, value: format!("{cron:?}"), allowed })
    };
    match Task::ALL.into_iter().find_map(wrong) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// The same options, with this age for everything.
pub(super) fn older_than(mut options: MaintenanceOptions, age: Duration) -> MaintenanceOptions {
    let MaintenanceOptions { archive, archive_purge, dlq_purge, log_purge, node_purge, .. } = &mut options;
    let ArchiveOptions { retention, .. } = archive;
    *retention = age;
    for purge in [archive_purge, dlq_purge, log_purge, node_purge] {
        purge.retention = age;
    }
    options
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Task {
    type Err = UnknownTask;

    fn from_str(text: &str) -> Result<Self, UnknownTask> {
        Self::ALL.into_iter().find(|task| task.name() == text).ok_or_else(|| UnknownTask(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn days(days: u64) -> Duration {
        Duration::from_hours(24 * days)
    }

    #[test]
    fn every_task_has_a_name_and_locks_of_its_own() {
        let names: std::collections::BTreeSet<_> =
            Task::ALL.iter().flat_map(|task| [task.lock().unwrap(), task.done_lock().unwrap()]).collect();
        assert_eq!(names.len(), 2 * Task::ALL.len());
        for task in Task::ALL {
            assert_eq!(task.name().parse(), Ok(task));
        }
        let error = "tidy".parse::<Task>().unwrap_err();
        assert!(error.to_string().starts_with("there is no task `tidy`; there are archive,"));
    }

    // shows: S179
    #[test]
    fn a_dead_letter_is_not_archived_while_it_is_kept_as_one() {
        for (archive, dlq, failed) in [(90, 90, 90), (120, 90, 120), (30, 90, 90)] {
            let mut options = MaintenanceOptions::default();
            options.archive.retention = days(archive);
            options.dlq_purge.retention = days(dlq);
            let expected = Retention { ended: days(archive), failed: days(failed) };
            assert_eq!(retention(&options), expected);
        }
    }

    #[test]
    fn a_cron_expression_that_makes_no_sense_is_named() {
        check(&MaintenanceOptions::default()).unwrap();
        let mut options = MaintenanceOptions::default();
        options.node_purge.cron = "0 0 0 31 2 *".to_owned();
        options.node_purge.enabled = false;
        assert_eq!(
            check(&options).unwrap_err().to_string(),
            "maintenance.node_purge.cron is \"0 0 0 31 2 *\", allowed is a cron expression (it is never due)"
        );
    }
}
