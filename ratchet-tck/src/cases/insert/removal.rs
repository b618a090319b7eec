//! Deletion of jobs and purging of dead letters.

use std::time::Duration;

use ratchet_api::{DeadReason, End, Fence, Inserted, JobId, LogLevel, NewLogLine, QueueName};

use super::super::keys::lives::{Life, named};
use super::{SECOND, after};
use crate::Fixture;
use crate::fixture::{error, job, job_with, text};

pub(super) async fn only_ended_jobs_are_deleted_with_all_that_belongs_to_them(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let tagged = || job_with(|new| new.spec.tags = vec![named("mine")]);
    let mut ended = Vec::new();
    for life in [Life::Succeeded, Life::Failed, Life::CanceledWaiting] {
        ended.push(life.reach(&node, tagged()).await);
    }
    let mut live = Vec::new();
    for life in Life::LIVE {
        live.push(life.reach(&node, tagged()).await);
    }
    let follower = job();
    let follower_id = follower.spec.id;
    assert_eq!(node.submit(after(ended[0], follower)).await, Inserted::New);
    let log = |job| NewLogLine { job, fence: Fence::FIRST, level: LogLevel::Info, message: text("hello") };
    let lines: Vec<_> = ended.iter().chain(&live).copied().map(log).collect();
    node.store.append_logs(&lines).await.expect("append_logs answers");
    let before = node.store.find(&live).await.expect("find answers");
    assert!(!node.store.executions(ended[0]).await.expect("executions answers").is_empty());

    let mut targets = ended.clone();
    targets.extend(&live);
    targets.extend([JobId::generate(), ended[0]]);
    assert_eq!(other.store.delete(&targets).await.expect("delete answers"), 3);

    for id in &ended {
        assert_eq!(node.find(*id).await, None);
        assert_eq!(node.store.executions(*id).await.expect("executions answers"), []);
        assert_eq!(node.store.logs(*id, None, 10).await.expect("logs answers"), []);
        assert_eq!(node.store.edges_from(&[*id]).await.expect("edges_from answers"), []);
    }
    assert_eq!(node.store.edges_to(&[follower_id]).await.expect("edges_to answers"), []);
    assert_eq!(node.store.find(&live).await.expect("find answers"), before);
    live.sort();
    assert_eq!(node.store.jobs_by_tag(&named("mine"), None, 100).await.expect("an answer"), live);
    for id in live {
        assert_eq!(node.store.logs(id, None, 10).await.expect("logs answers").len(), 1);
    }
    assert_eq!(node.store.delete(&targets).await.expect("delete answers"), 0, "they are gone");
    assert_eq!(node.store.delete(&[]).await.expect("delete answers"), 0);
}

pub(super) async fn old_dead_letters_are_purged_and_no_more_than_asked_for(fx: Fixture) {
    let node = fx.node("a").await;
    let queue: QueueName = named("failing");
    let new = || job_with(|new| new.spec.queue = queue.clone());
    // The jobs fail in the reverse order of their ids, so age and id are not the same order.
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(node.running(new()).await);
    }
    let youngest = running.remove(0);
    let dead = || End::DeadLetter { error: error("for good"), reason: DeadReason::DoNotRetry };
    let mut failed = Vec::new();
    for claim in running.iter().rev() {
        node.end(claim, dead()).await;
        failed.push(claim.id);
        fx.advance(SECOND);
    }
    let kept = [
        Life::Succeeded.reach(&node, new()).await,
        Life::CanceledWaiting.reach(&node, new()).await,
        Life::PausedFromFailed.reach(&node, new()).await,
        Life::Pending.reach(&node, new()).await,
    ];
    node.end(&youngest, dead()).await;
    let remaining = async || {
        let mut rest = Vec::new();
        for id in failed.iter().chain([&youngest.id]) {
            if node.find(*id).await.is_some() {
                rest.push(*id);
            }
        }
        rest
    };
    let purge = async |retention, limit| {
        node.store.purge_dead_letters(retention, limit).await.expect("purge_dead_letters answers")
    };

    // The oldest ended exactly 3 s ago, which is not more than 3 s.
    assert_eq!(purge(3 * SECOND, 10).await, 0);
    fx.advance(2 * SECOND);
    assert_eq!(purge(2 * SECOND, 0).await, 0);
    assert_eq!(purge(2 * SECOND, 2).await, 2);
    assert_eq!(remaining().await.len(), 2);
    assert_eq!(purge(2 * SECOND, 10).await, 1);
    assert_eq!(remaining().await, [youngest.id], "two seconds old is not past two seconds");
    fx.advance(Duration::from_millis(1));
    assert_eq!(purge(2 * SECOND, 10).await, 1);
    assert_eq!(remaining().await, []);
    for id in kept {
        assert!(node.find(id).await.is_some());
    }
}
