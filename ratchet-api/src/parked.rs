//! Parked jobs: what a pending job waits for besides its due time and its parents.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{InvalidName, ResourceName};

/// The reason why a pending job is parked: it waits for something other than its due time and its parents. Claims skip
/// it until a node or a resource provides what it lacks; its due time and its age are kept.
///
/// ```
/// use ratchet_api::ParkedOn;
///
/// let lacks = ParkedOn::Method("mail.Sender.send".to_owned());
/// assert_eq!(lacks.to_string(), "method:mail.Sender.send");
/// assert_eq!("method:mail.Sender.send".parse(), Ok(lacks));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[non_exhaustive]
pub enum ParkedOn {
    /// The job waits for a node that lists this method, as [`JobPayload::call_name`](crate::JobPayload::call_name)
    /// writes it.
    Method(String),
    /// The job waits for a permit of this resource.
    Resource(ResourceName),
    /// The job is suspected of having killed the node that held it last, so it waits for a node that runs it with no
    /// other job. Claims skip it; it is taken by [`pick_up_parked`](crate::store::JobBatchStatusStore::pick_up_parked).
    Suspect {
        /// The number of nodes that died while they held it.
        crashes: u32,
        /// The method that it calls, written as in [`Method`](Self::Method).
        method: String,
    },
}

impl ParkedOn {
    /// The prefix of the stored text of [`Method`](Self::Method).
    pub const METHOD: &str = "method:";
    /// The prefix of the stored text of [`Resource`](Self::Resource).
    pub const RESOURCE: &str = "resource:";
    /// The prefix of the stored text of [`Suspect`](Self::Suspect).
    pub const SUSPECT: &str = "suspect:";
}

impl fmt::Display for ParkedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(name) => write!(f, "{}{name}", Self::METHOD),
            Self::Resource(name) => write!(f, "{}{name}", Self::RESOURCE),
            Self::Suspect { crashes, method } => write!(f, "{}{crashes}:{method}", Self::SUSPECT),
        }
    }
}

/// The error for a stored text that is not a [`ParkedOn`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownParking {
    /// The prefix is unknown, or the fields of a suspect cannot be read.
    #[error("parked on something that this version does not know")]
    Kind,
    /// The name of the resource is not valid.
    #[error(transparent)]
    Resource(#[from] InvalidName),
}

impl FromStr for ParkedOn {
    type Err = UnknownParking;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix(Self::METHOD) {
            return Ok(Self::Method(name.to_owned()));
        }
        if let Some(suspect) = text.strip_prefix(Self::SUSPECT) {
            let (crashes, method) = suspect.split_once(':').ok_or(UnknownParking::Kind)?;
            let crashes = crashes.parse().map_err(|_| UnknownParking::Kind)?;
            return Ok(Self::Suspect { crashes, method: method.to_owned() });
        }
        let name = text.strip_prefix(Self::RESOURCE).ok_or(UnknownParking::Kind)?;
        Ok(Self::Resource(ResourceName::new(name)?))
    }
}

impl From<ParkedOn> for String {
    fn from(on: ParkedOn) -> Self {
        on.to_string()
    }
}

impl TryFrom<String> for ParkedOn {
    type Error = UnknownParking;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_reads_back_and_nothing_else_does() {
        for on in [
            ParkedOn::Method("a.A.run".to_owned()),
            ParkedOn::Resource(ResourceName::new("smtp").unwrap()),
            ParkedOn::Suspect { crashes: 3, method: "a.A.run:fast".to_owned() },
        ] {
            assert_eq!(on.to_string().parse(), Ok(on.clone()));
            assert_eq!(serde_json::from_str::<ParkedOn>(&serde_json::to_string(&on).unwrap()).unwrap(), on);
        }
        assert_eq!("resource:smtp".parse(), Ok(ParkedOn::Resource(ResourceName::new("smtp").unwrap())));
        assert_eq!("smtp".parse::<ParkedOn>(), Err(UnknownParking::Kind));
        assert!("resource:".parse::<ParkedOn>().is_err());
        for text in ["suspect:", "suspect:3", "suspect:x:a.A.run", "suspect:-1:a.A.run"] {
            assert_eq!(text.parse::<ParkedOn>(), Err(UnknownParking::Kind), "{text}");
        }
    }
}
