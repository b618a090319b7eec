//! The filter options that all commands on jobs share.

use ratchet_api::store::JobFilter;
use ratchet_api::{BusinessKey, Fingerprint, JobStatus, MethodName, QueueName, Tag, TargetName, Timestamp};

/// A filter of jobs. A job must match every given option.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Only jobs")]
pub(crate) struct Filter {
    /// With one of these statuses: pending, running, succeeded, failed, paused, canceled
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    status: Vec<JobStatus>,

    /// In this queue
    #[arg(long, value_name = "NAME", value_parser = |text: &str| QueueName::new(text))]
    queue: Option<QueueName>,

    /// With this target
    #[arg(long, value_name = "NAME", value_parser = |text: &str| TargetName::new(text))]
    target: Option<TargetName>,

    /// With this method
    #[arg(long, value_name = "NAME", value_parser = |text: &str| MethodName::new(text))]
    method: Option<MethodName>,

    /// With this tag; if repeated, with all of them
    #[arg(long, value_name = "WORD", value_parser = |text: &str| Tag::new(text))]
    tag: Vec<Tag>,

    /// With this business key
    #[arg(long, value_name = "KEY", value_parser = |text: &str| BusinessKey::new(text))]
    key: Option<BusinessKey>,

    /// Dead letters with this fingerprint, as shown by `ratchet dlq list`
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<String>,

    /// Created at or after this time, such as 2026-11-16T08:30:00Z
    #[arg(long, value_name = "TIME")]
    created_from: Option<Timestamp>,

    /// Created before this time
    #[arg(long, value_name = "TIME")]
    created_until: Option<Timestamp>,

    /// Ended at or after this time
    #[arg(long, value_name = "TIME")]
    ended_from: Option<Timestamp>,

    /// Ended before this time
    #[arg(long, value_name = "TIME")]
    ended_until: Option<Timestamp>,
}

impl Filter {
    /// A filter for dead letters with this fingerprint.
    pub(crate) fn alike(fingerprint: String) -> Self {
        Self { fingerprint: Some(fingerprint), ..Self::default() }
    }
}

impl From<Filter> for JobFilter {
    fn from(given: Filter) -> Self {
        let mut filter = Self::default();
        filter.statuses = given.status;
        filter.queue = given.queue;
        filter.target = given.target;
        filter.method = given.method;
        filter.tags = given.tag;
        filter.business_key = given.key;
        filter.fingerprint = given.fingerprint.map(Fingerprint::from_stored);
        filter.created_from = given.created_from;
        filter.created_until = given.created_until;
        filter.ended_from = given.ended_from;
        filter.ended_until = given.ended_until;
        filter
    }
}

/// Parses a status, in lower or upper case.
fn status(word: &str) -> Result<JobStatus, String> {
    let word = word.to_uppercase();
    let word = if word == "CANCELED" { JobStatus::Canceled.as_str() } else { word.as_str() };
    word.parse().map_err(|_| "it is pending, running, succeeded, failed, paused or canceled".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_people_write_it() {
        assert_eq!(status("failed"), Ok(JobStatus::Failed));
        assert_eq!(status("Canceled"), Ok(JobStatus::Canceled));
        assert!(status("done").unwrap_err().contains("succeeded"));
    }
}
