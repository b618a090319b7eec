//! Output of resources.

use std::fmt;

use ratchet_api::{JobId, ResourceName, ResourceUse};
use serde::Serialize;

use super::Table;

/// Every resource with a limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Resources {
    resources: Vec<Resource>,
}

#[derive(Clone, Debug, Serialize)]
struct Resource {
    name: ResourceName,
    limit: u32,
    held_by: Vec<JobId>,
}

impl Resources {
    pub(crate) fn of(resources: Vec<ResourceUse>) -> Self {
        let resource = |used: ResourceUse| Resource {
            name: used.limit.name,
            limit: used.limit.max_concurrent,
            held_by: used.holders,
        };
        Self { resources: resources.into_iter().map(resource).collect() }
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.resources.is_empty() {
            return writeln!(f, "No resource has a limit; `ratchet resources set NAME LIMIT` gives it one.");
        }
        let mut table = Table::new(["RESOURCE", "LIMIT", "HELD", "BY"]);
        for Resource { name, limit, held_by } in &self.resources {
            let mut holders = held_by.iter();
            let first = holders.next().map(ToString::to_string).unwrap_or_default();
            table.row([name.to_string(), limit.to_string(), held_by.len().to_string(), first]);
            for holder in holders {
                table.row([String::new(), String::new(), String::new(), holder.to_string()]);
            }
        }
        write!(f, "{table}")
    }
}

/// The result of setting a limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limited {
    pub(crate) resource: ResourceName,
    pub(crate) limit: u32,
    /// The previous limit, if there was one.
    pub(crate) was: Option<u32>,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, limit, was } = self;
        match limit {
            1 => write!(f, "At most 1 job uses {resource} at once")?,
            _ => write!(f, "At most {limit} jobs use {resource} at once")?,
        }
        match was {
            Some(was) if was == limit => writeln!(f, ", as before."),
            Some(was) => writeln!(f, "; before, it was {was}."),
            None => writeln!(f, "; before, it had no limit, and jobs that need it waited."),
        }
    }
}
