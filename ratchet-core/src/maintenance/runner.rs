//! The runner of maintenance: each task at its time, on one node of the cluster.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::join_all;
use ratchet_api::{LockLease, Owner, StoreResult, Timestamp};
use tokio::sync::watch;
use tokio::time::sleep;

use super::held_lock::HeldLock;
use super::{Maintenance, Ran, Task, in_time, timetable};
use crate::cluster::lease::Lease;
use crate::engine::Node;
use crate::schedule::CronSchedule;

/// Runs every enabled task at its times, until the node drains.
pub(crate) async fn run(node: Arc<Node>, lease: watch::Receiver<Arc<Lease>>) {
    let options = &node.options.maintenance;
    let tasks = Task::ALL.into_iter().filter_map(|task| {
        let (enabled, cron) = task.timetable(options);
        let schedule = CronSchedule::parse(cron, Timestamp::node_now()).ok()?;
        enabled.then(|| Runner { task, schedule, node: &node, lease: lease.clone() })
    });
    join_all(tasks.map(Runner::run)).await;
}

/// A task with its timetable.
struct Runner<'a> {
    task: Task,
    schedule: CronSchedule,
    node: &'a Node,
    lease: watch::Receiver<Arc<Lease>>,
}

impl Runner<'_> {
    async fn run(self) {
        loop {
            // The node's clock decides only when to check; what is due is decided by the store's clock.
            let now = Timestamp::node_now();
            let ttl = self.node.options.maintenance.lock_ttl;
            let wait = timetable::wait(now, self.schedule.after(now), ttl, rand::random());
            tokio::select! {
                () = self.node.drain.begun() => return,
                () = sleep(wait) => {}
            }
            self.look().await;
        }
    }

    /// Runs the task, unless another node runs it or has done it. After any failure the next check tries again.
    async fn look(&self) {
        let lease = Arc::clone(&self.lease.borrow());
        if !lease.holds() {
            return;
        }
        let (task, node) = (self.task, lease.owner());
        match AssertUnwindSafe(self.under_lock(&lease)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%node, %task, %error, "maintenance failed; it is tried again later");
            }
            Err(_) => tracing::error!(%node, %task, "maintenance panicked; it is tried again later"),
        }
    }

    async fn under_lock(&self, lease: &Lease) -> StoreResult<()> {
        let Node { store, options, .. } = self.node;
        let owner = lease.owner().clone();
        let maintenance = Maintenance::new(Arc::clone(store), options.maintenance.clone(), owner);
        let Some(mut hold) = maintenance.hold(self.task).await? else { return Ok(()) };
        let done = self.unless_done(&maintenance, &mut hold, lease).await;
        hold.release().await;
        done
    }

    /// Runs the task unless it is done: a node that has done it leaves a second lock behind, which ends when the task
    /// is due again.
    async fn unless_done(
        &self,
        maintenance: &Maintenance,
        hold: &mut HeldLock,
        lease: &Lease,
    ) -> StoreResult<()> {
        let (store, name) = (&self.node.store, self.task.done_lock()?);
        // A store never refuses an owner its own lock, so this lock belongs to an owner that nobody else is.
        let nobody = Owner::incarnate(&self.node.label);
        let ttl = self.node.options.maintenance.lock_ttl;
        let Some(due) = in_time(ttl, store.try_lock(&name, ttl, &nobody)).await? else { return Ok(()) };
        let begun = in_time(ttl, store.database_time()).await?;
        let go_on = |_| self.node.drain.takes_work() && lease.holds();
        let ran = maintenance.sweep(self.task, hold, go_on).await;
        self.tell(&ran, begun, lease.owner());
        match ran {
            Ok(Ran::Done { .. }) => in_time(ttl, self.done(&due)).await,
            _ => in_time(ttl, store.unlock(&due)).await.map(drop),
        }?;
        ran.map(drop)
    }

    /// Marks the task as done until it is due again.
    async fn done(&self, due: &LockLease) -> StoreResult<()> {
        let store = &self.node.store;
        let now = store.database_time().await?;
        let Some(next) = self.schedule.after(now) else { return Ok(()) };
        // The lock may have ended meanwhile; no other node takes it without the first one.
        store.try_lock(&due.name, next.since(now), &due.owner).await.map(drop)
    }

    fn tell(&self, ran: &StoreResult<Ran>, begun: Timestamp, node: &Owner) {
        let task = self.task;
        if let Ok(Ran::Done { rows } | Ran::Lost { rows } | Ran::Stopped { rows }) = ran {
            self.node.plugs.metrics.tell(|sink| sink.maintained(task.name(), *rows));
        }
        match ran {
            Ok(Ran::Done { rows }) => {
                let due = self.schedule.last(begun).unwrap_or(begun);
                tracing::info!(%node, %task, %due, rows, "maintenance is done");
            }
            Ok(Ran::Lost { rows }) => {
                tracing::warn!(%node, %task, rows, "the lock of a maintenance task is lost; another node goes on");
            }
            Ok(Ran::Stopped { rows }) => {
                tracing::info!(%node, %task, rows, "maintenance stops; another node goes on");
            }
            Ok(Ran::Busy) | Err(_) => {}
        }
    }
}
