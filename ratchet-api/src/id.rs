//! Identifiers: jobs, batches, fences and owners.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Timestamp;
use crate::uuid7::{UuidV7Generator, timestamp_of};

static GENERATOR: LazyLock<UuidV7Generator> = LazyLock::new(UuidV7Generator::default);

/// Identifies one job for ever: a time-ordered UUIDv7, made by the submitter.
///
/// ```
/// use ratchet_api::JobId;
///
/// let (first, second) = (JobId::generate(), JobId::generate());
/// assert!(first < second);
/// assert_eq!(first.to_string().parse::<JobId>().unwrap(), first);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Uuid);

impl JobId {
    /// A new id; ids of one process strictly increase.
    pub fn generate() -> Self {
        Self(GENERATOR.generate())
    }

    /// Wraps an id that came from a store or a user.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The plain UUID.
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }

    /// When the id was made by its maker's clock; `None` if it is not a UUIDv7.
    pub fn timestamp(self) -> Option<Timestamp> {
        timestamp_of(self.0).and_then(|ms| i64::try_from(ms).ok()).map(Timestamp::from_millis)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for JobId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Identifies a batch by its parent job: the job that runs when all children have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(JobId);

impl BatchId {
    /// The batch whose parent is `job`.
    pub const fn of(job: JobId) -> Self {
        Self(job)
    }

    /// The parent job.
    pub const fn parent(self) -> JobId {
        self.0
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number that proves who may still write a job.
///
/// It is the row's version: every change of owner or status raises it and nothing ever restarts it,
/// so a write that carries an old fence changes nothing. Jobs can pass it on to other systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(i64);

impl Fence {
    /// The fence of a job that was just inserted.
    pub const FIRST: Self = Self(1);

    /// Wraps a stored version.
    pub const fn from_version(version: i64) -> Self {
        Self(version)
    }

    /// The stored version.
    pub const fn version(self) -> i64 {
        self.0
    }

    /// The fence after the next change.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether nothing can raise it any more: only a foreign hand writes such a version.
    pub const fn is_last(self) -> bool {
        self.0 == i64::MAX
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One life of one node: what `picked_by`, locks and leases hold.
///
/// A label (host name, pod name, …) can be reused by the next process; the random incarnation cannot.
/// The text is at most [`Owner::MAX_LEN`] bytes: as much of the label as fits, `/`, 32 hex digits.
///
/// ```
/// use ratchet_api::Owner;
///
/// let owner = Owner::incarnate("billing-7f9c");
/// assert!(owner.as_str().starts_with("billing-7f9c/"));
/// assert_ne!(owner, Owner::incarnate("billing-7f9c"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Owner(String);

impl Owner {
    /// The most bytes an owner takes in a store.
    pub const MAX_LEN: usize = 64;
    const INCARNATION: usize = 32;

    /// A new life of the node called `label`, with a random incarnation.
    pub fn incarnate(label: &str) -> Self {
        let room = Self::MAX_LEN - Self::INCARNATION - 1;
        let mut prefix = String::new();
        for c in label.chars().map(|c| if c == '/' || c.is_control() { '-' } else { c }) {
            if prefix.len() + c.len_utf8() > room {
                break;
            }
            prefix.push(c);
        }
        Self(format!("{prefix}/{:032x}", rand::random::<u128>()))
    }

    /// Wraps what a row says about its owner, whatever that is: jobs of somebody who never was a node are recovered like
    /// those of a dead one.
    pub fn from_stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The stored text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part of the label that fitted.
    pub fn label(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(label, _)| label)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.0
    }
}

/// A stored owner that no node can have written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an owner: expected a label, `/` and 32 hex digits in at most 64 bytes")]
pub struct InvalidOwner(String);

impl TryFrom<String> for Owner {
    type Error = InvalidOwner;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits = text.len() <= Self::MAX_LEN
            && text.rsplit_once('/').is_some_and(|(_, incarnation)| {
                incarnation.len() == Self::INCARNATION && incarnation.bytes().all(|b| b.is_ascii_hexdigit())
            });
        if fits { Ok(Self(text)) } else { Err(InvalidOwner(text)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: S129 S130
    #[test]
    fn an_owner_fits_its_column_whatever_the_label() {
        for label in ["", "node", "a/b\nc", &"x".repeat(300), &"é".repeat(300)] {
            let owner = Owner::incarnate(label);
            assert!(owner.as_str().len() <= Owner::MAX_LEN, "{owner}");
            assert_eq!(Owner::try_from(owner.as_str().to_owned()).as_ref(), Ok(&owner));
        }
    }

    #[test]
    fn text_that_no_node_wrote_is_refused() {
        for text in ["", "node", "node/123", "node/zz3456789012345678901234567890zz"] {
            assert!(Owner::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    // shows: S165
    #[test]
    fn a_job_id_tells_when_it_was_made() {
        let before = Timestamp::node_now();
        let made = JobId::generate().timestamp().unwrap();
        assert!(made >= before - std::time::Duration::from_millis(5), "{made} {before}");
        assert_eq!(JobId::from_uuid(Uuid::nil()).timestamp(), None);
    }

    #[test]
    fn an_owner_keeps_as_much_of_its_label_as_fits() {
        for (label, kept) in [
            ("node", "node"),
            ("a/b\nc", "a-b-c"),
            (&"x".repeat(31), &*"x".repeat(31)),
            (&"x".repeat(32), &"x".repeat(31)),
            (&"é".repeat(16), &"é".repeat(15)),
        ] {
            let owner = Owner::incarnate(label);
            assert_eq!(owner.label(), kept);
            assert_eq!((owner.to_string(), String::from(owner.clone())), (owner.0.clone(), owner.0));
        }
        let too_long = format!("{}/{:032x}", "x".repeat(32), 1);
        assert!(Owner::try_from(too_long).is_err());
    }

    #[test]
    fn ids_and_fences_are_shown_as_they_are_stored() {
        let id = JobId::generate();
        assert_eq!(id.to_string(), id.as_uuid().to_string());
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(BatchId::of(id).to_string(), id.to_string());
        assert_eq!((BatchId::of(id).parent(), JobId::from_uuid(id.as_uuid())), (id, id));
        assert_eq!(Fence::from_version(7).next().version(), 8);
        assert_eq!(Fence::from_version(7).to_string(), "7");
    }
}
