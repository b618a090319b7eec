use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, days, mins, secs};

/// Maintenance tasks, each of which one node at a time does for all, under a lock of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceOptions {
    /// Deletes dead letters. Default daily at 02:00 UTC, after 90 days.
    pub dlq_purge: PurgeOptions,
    /// Moves finished jobs to the archive. Default daily at 01:00 UTC, after 90 days.
    pub archive: ArchiveOptions,
    /// Deletes job log lines. Default daily at 02:30 UTC, after 30 days.
    pub log_purge: PurgeOptions,
    /// Deletes archived jobs. Off by default: then the archive keeps them for ever. Otherwise daily at 01:30 UTC, after
    /// a year, unless set.
    pub archive_purge: PurgeOptions,
    /// Deletes the rows of nodes that died and hold no job. Default hourly, after a day.
    pub node_purge: PurgeOptions,
    /// How long a lock outlives a holder that crashed. Default 10 min.
    pub lock_ttl: Duration,
}

/// The schedule and the retention of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeOptions {
    /// Whether the purge runs at all.
    pub enabled: bool,
    /// When it runs, as a cron expression in UTC.
    pub cron: String,
    /// Age from which on records are deleted.
    pub retention: Duration,
}

/// The schedule and the retention of archiving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Whether archiving runs at all. Default true.
    pub enabled: bool,
    /// When it runs, as a cron expression in UTC.
    pub cron: String,
    /// Age, counted from the end of the job, from which on jobs are archived. Not less than the retention of dead
    /// letters: a failed job must stay open for a manual retry that long.
    pub retention: Duration,
    /// Jobs per transaction. Default 1 000.
    pub batch_size: u32,
}

impl MaintenanceOptions {
    /// Checks ranges and the shape of the cron expressions, also of parts that are switched off.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("maintenance");
        for (part, cron, retention) in [
            ("dlq_purge", &self.dlq_purge.cron, self.dlq_purge.retention),
            ("archive", &self.archive.cron, self.archive.retention),
            ("log_purge", &self.log_purge.cron, self.log_purge.retention),
            ("archive_purge", &self.archive_purge.cron, self.archive_purge.retention),
            ("node_purge", &self.node_purge.cron, self.node_purge.retention),
        ] {
            rules.cron(format_args!("{part}.cron"), cron);
            rules.within(format_args!("{part}.retention"), retention, secs(1), days(36_500));
        }
        let (archived, purged) = (self.archive.retention, self.dlq_purge.retention);
        let allowed = format!("at least {purged:?} (maintenance.dlq_purge.retention)");
        rules.ensure(archived >= purged, "archive.retention", archived, allowed);
        rules.within("archive.batch_size", self.archive.batch_size, 1, 100_000);
        rules.within("lock_ttl", self.lock_ttl, secs(1), days(1));
        rules.verdict()
    }
}

impl Default for MaintenanceOptions {
    fn default() -> Self {
        let purge = |cron: &str, retention| PurgeOptions { enabled: true, cron: cron.to_owned(), retention };
        Self {
            dlq_purge: purge("0 0 2 * * *", days(90)),
            archive: ArchiveOptions {
                enabled: true,
                cron: "0 0 1 * * *".to_owned(),
                retention: days(90),
                batch_size: 1_000,
            },
            log_purge: purge("0 30 2 * * *", days(30)),
            archive_purge: PurgeOptions { enabled: false, ..purge("0 30 1 * * *", days(365)) },
            node_purge: purge("0 15 * * * *", days(1)),
            lock_ttl: mins(10),
        }
    }
}
