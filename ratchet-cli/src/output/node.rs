//! Nodes.

use std::fmt;

use ratchet_api::{Node, Owner};
use serde::Serialize;

use super::{Instant, Table};

/// Every node that is known.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Nodes {
    nodes: Vec<NodeView>,
    #[serde(skip)]
    now: Instant,
}

#[derive(Clone, Debug, Serialize)]
struct NodeView {
    owner: Owner,
    label: String,
    version: String,
    targets: Vec<String>,
    /// `alive`, `dead` (its lease ran out) or `reaped` (its jobs were taken over).
    state: &'static str,
    started_at: Instant,
    heartbeat_at: Instant,
    lease_until: Instant,
    running: u32,
    slots: u32,
    clock_skew_ms: i64,
}

impl Nodes {
    pub(crate) fn of(nodes: Vec<Node>, now: Instant) -> Self {
        Self { nodes: nodes.into_iter().map(|node| NodeView::of(node, now)).collect(), now }
    }
}

impl NodeView {
    fn of(node: Node, now: Instant) -> Self {
        let state = match (node.reaped, node.lease_until > now.0) {
            (true, _) => "reaped",
            (false, true) => "alive",
            (false, false) => "dead",
        };
        Self {
            owner: node.info.owner,
            label: node.info.label,
            version: node.info.version,
            targets: node.info.targets,
            state,
            started_at: node.started_at.into(),
            heartbeat_at: node.heartbeat_at.into(),
            lease_until: node.lease_until.into(),
            running: node.running,
            slots: node.slots,
            clock_skew_ms: node.skew_millis,
        }
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes.is_empty() {
            return writeln!(f, "No node is known.");
        }
        let mut table = Table::new(["NODE", "STATE", "RUNNING", "VERSION", "HEARTBEAT", "CLOCK"]);
        for node in &self.nodes {
            table.row([
                node.owner.to_string(),
                node.state.to_owned(),
                format!("{} of {}", node.running, node.slots),
                node.version.clone(),
                node.heartbeat_at.seen_from(self.now),
                format!("{:+} ms", node.clock_skew_ms),
            ]);
        }
        write!(f, "{table}")
    }
}
