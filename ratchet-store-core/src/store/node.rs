//! Nodes: membership, heartbeats, and the recovery of jobs from dead owners.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::NodeStore;
use ratchet_api::{Beat, BeatReply, JobClaim, Node, NodeInfo, Owner, Pulse, StoreResult, Timestamp};

use super::SqlStore;
use crate::store::claim::readable;
use crate::store::row::{Cells, Problem, read_readable};
use crate::store::session::Session;
use crate::store::values::{delay_millis, retention_millis, row_limit};

#[async_trait]
impl NodeStore for SqlStore {
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        Ok(Box::new(self.alone()))
    }

    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()> {
        self.write("join", |session| Box::pin(join(session, node, lease))).await
    }

    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply> {
        self.write("beat", |session| Box::pin(renew(session, beat))).await
    }

    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        self.write("recover", |session| Box::pin(recover(session, dead, to, limit))).await
    }

    async fn leave(&self, owner: &Owner) -> StoreResult<bool> {
        self.write("leave", |session| Box::pin(leave(session, owner))).await
    }

    async fn nodes(&self) -> StoreResult<Vec<Node>> {
        self.read("nodes", |session| {
            Box::pin(async move {
                let rows = session.sql().nodes.bind().rows(session).await?;
                Ok(read_readable(session.op(), "a node", &rows, node))
            })
        })
        .await
    }

    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64> {
        self.write("purge_nodes", |session| {
            Box::pin(async move {
                let purge = session.sql().purge_nodes.bind().arg("now", session.store().now());
                purge.arg("retention_ms", retention_millis(retention)).run(session).await
            })
        })
        .await
    }

    async fn clock_went_back(&self, by: Duration, within: Duration, limit: usize) -> StoreResult<u64> {
        let (by, within) = (retention_millis(by), retention_millis(within));
        self.write("clock_went_back", |session| {
            Box::pin(async move {
                let (sql, now) = (session.sql(), session.store().now());
                sql.clock_back_nodes.bind().arg("now", now).run(session).await?;
                let due = sql.clock_back_due.bind().arg("now", now).arg("by_ms", by).arg("within_ms", within);
                due.arg("lim", row_limit(limit)).run(session).await
            })
        })
        .await
    }
}

async fn join(session: &mut Session<'_>, node: &NodeInfo, lease: Duration) -> StoreResult<()> {
    let join = session.sql().join.bind();
    join.arg("owner", node.owner.as_str())
        .arg("label", &node.label)
        .arg("version", &node.version)
        .arg("methods", &node.methods)
        .arg("queues", &node.queues)
        .arg("lease_ms", delay_millis(lease))
        .arg("now", session.store().now())
        .run(session)
        .await?;
    Ok(())
}

async fn renew(session: &mut Session<'_>, beat: &Beat) -> StoreResult<BeatReply> {
    let renew = session.sql().beat.bind();
    let row = renew
        .arg("now", session.store().now())
        .arg("lease_ms", delay_millis(beat.lease))
        .arg("gap_ms", retention_millis(beat.gap))
        .arg("node_time_ms", beat.node_time.as_millis())
        .arg("running", i64::from(beat.running))
        .arg("slots", i64::from(beat.slots))
        .arg("draining", beat.draining)
        .arg("owner", beat.owner.as_str())
        .row(session)
        .await?;
    let (cells, op) = (Cells(&row), session.op());
    let db_now = cells.must(op, "now")?;
    if !cells.must(op, "accepted")? {
        return Ok(BeatReply::refused(db_now));
    }
    let mut reply = BeatReply::accepted(db_now);
    let dead: Vec<String> = cells.must(op, "dead")?;
    reply.dead = dead.into_iter().map(Owner::from_stored).collect();
    reply.cancel_requested = cells.must(op, "cancel_requested")?;
    reply.holds_jobs = cells.must(op, "holds_jobs")?;
    reply.due_work = cells.must(op, "due_work")?;
    reply.suspects = cells.must(op, "suspects")?;
    reply.next_due = cells.must_opt(op, "next_due")?;
    reply.next_fire = cells.must_opt(op, "next_fire")?;
    if !reply.dead.is_empty() {
        reply.pulses = pulses(session, &reply.dead, beat.lease).await?;
    }
    Ok(reply)
}

/// The beats that matter for these deaths. A row that cannot be read proves nothing, and must not keep others from
/// proving something: its node is reported as one that has never beaten, with the lease of the caller.
async fn pulses(session: &mut Session<'_>, dead: &[Owner], lease: Duration) -> StoreResult<Vec<Pulse>> {
    let pulses = session.sql().pulses.bind().arg("now", session.store().now());
    let rows = pulses.arg("dead", names(dead)).rows(session).await?;
    Ok(rows.iter().filter_map(|row| pulse(Cells(row)).or_else(|_| silent(Cells(row), lease)).ok()).collect())
}

fn silent(cells: Cells<'_>, lease: Duration) -> Result<Pulse, Problem> {
    Ok(Pulse::unreadable(cells.get("node_id")?, lease))
}

fn names(owners: &[Owner]) -> Vec<&str> {
    owners.iter().map(Owner::as_str).collect()
}

async fn recover(
    session: &mut Session<'_>,
    dead: &[Owner],
    to: &Owner,
    limit: usize,
) -> StoreResult<Vec<JobClaim>> {
    let recover = session.sql().recover.bind();
    let rows = recover
        .arg("now", session.store().now())
        .arg("owner", to.as_str())
        .arg("dead", names(dead))
        .arg("lim", row_limit(limit))
        .rows(session)
        .await?;
    Ok(readable(session.op(), &rows))
}

async fn leave(session: &mut Session<'_>, owner: &Owner) -> StoreResult<bool> {
    if session.sql().leave.bind().arg("owner", owner.as_str()).run(session).await? > 0 {
        return Ok(true);
    }
    // An owner without a row has left before; a reply may have been lost.
    let row = session.sql().holds_jobs.bind().arg("owner", owner.as_str()).row(session).await?;
    Ok(!Cells(&row).must::<bool>(session.op(), "holds_jobs")?)
}

/// The beats in a row of `scheduler_node`.
fn pulse(cells: Cells<'_>) -> Result<Pulse, Problem> {
    let mut pulse = Pulse::joined(cells.get("node_id")?, cells.get("heartbeat_ts")?, cells.get("lease_ms")?);
    pulse.since = cells.get("beating_since")?;
    pulse.gap = cells.get("beat_gap_ms")?;
    pulse.reaped = cells.get("reaped")?;
    Ok(pulse)
}

/// A row of `scheduler_node`.
fn node(cells: Cells<'_>) -> Result<Node, Problem> {
    let mut info = NodeInfo::new(cells.get("node_id")?);
    info.label = cells.shown("label");
    info.version = cells.shown("node_version");
    info.methods = cells.get("methods").unwrap_or_default();
    info.queues = cells.get("queues").unwrap_or_default();
    let time = |name| cells.get(name).unwrap_or(Timestamp::MIN);
    let mut node = Node::joined(info, time("started_at"), Duration::ZERO);
    node.heartbeat_at = time("heartbeat_ts");
    node.beating_since = time("beating_since");
    node.beat_gap = cells.get("beat_gap_ms").unwrap_or_default();
    node.lease_until = time("lease_until");
    node.reaped = cells.get("reaped").unwrap_or_default();
    node.skew_millis = cells.get("skew_ms").unwrap_or_default();
    node.running = cells.clamped("running");
    node.slots = cells.clamped("slots");
    node.draining = cells.get("draining").unwrap_or_default();
    Ok(node)
}
