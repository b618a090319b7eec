//! Output of nodes.

use std::fmt;

use ratchet_api::{Node, Owner};
use serde::Serialize;

use super::{Instant, Table, escape};

/// Every known node.
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
    methods: Vec<String>,
    queues: Vec<String>,
    /// `alive`, `draining` (alive, but stopping), `dead` (its lease ran out) or `reaped` (its jobs were taken over).
    state: &'static str,
    /// When it died, if it is not alive.
    dead_since: Option<Instant>,
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
        let dead_since = (node.reaped || node.lease_until <= now.0).then_some(node.lease_until.into());
        let state = match (node.reaped, node.lease_until > now.0) {
            (true, _) => "reaped",
            (false, true) if node.draining => "draining",
            (false, true) => "alive",
            (false, false) => "dead",
        };
        Self {
            owner: node.info.owner,
            label: node.info.label,
            version: node.info.version,
            methods: node.info.methods,
            queues: node.info.queues,
            state,
            dead_since,
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

/// Every known node, with all its details.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct NodeList(pub(crate) Nodes);

impl fmt::Display for NodeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nodes { nodes, now } = &self.0;
        if nodes.is_empty() {
            return writeln!(f, "No node is known.");
        }
        for (place, node) in nodes.iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            let since = node.dead_since.map(|since| format!(" since {}", since.seen_from(*now)));
            writeln!(f, "{}  {}{}", node.owner, node.state, since.unwrap_or_default())?;
            writeln!(f, "  label      {}", escape::one_line(&node.label))?;
            writeln!(f, "  version    {}", escape::one_line(&node.version))?;
            writeln!(f, "  started    {}", node.started_at.seen_from(*now))?;
            writeln!(f, "  heartbeat  {}", node.heartbeat_at.seen_from(*now))?;
            writeln!(f, "  running    {} of {}", node.running, node.slots)?;
            writeln!(f, "  clock      {:+} ms against the database", node.clock_skew_ms)?;
            let list = |names: &[String]| match names {
                [] => "none".to_owned(),
                names => escape::one_line(&names.join(", ")),
            };
            writeln!(f, "  queues     {}", list(&node.queues))?;
            writeln!(f, "  methods    {}", list(&node.methods))?;
        }
        Ok(())
    }
}
