//! Alerts: which dead letters raise one, and how often.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{Alerted, DlqAlert, Fingerprint, JobId, NewDlqAlert};

use super::super::keys::lives::{Life, connections};
use super::SECOND;
use crate::fixture::job;
use crate::{Fixture, Peer};

const WINDOW: Duration = Duration::from_hours(1);

fn alert(job: JobId, hash: &str, message: &str) -> NewDlqAlert {
    let fingerprint = Fingerprint::of("tck.Service", "TestError", message);
    NewDlqAlert { job, error_hash: format!("{hash:0>64}"), fingerprint, window: WINDOW }
}

async fn record(peer: &Peer, alert: NewDlqAlert) -> Alerted {
    let mut answers = peer.store.record_alerts(&[alert]).await.expect("record_alerts answers");
    assert_eq!(answers.len(), 1, "one answer for one alert");
    answers.remove(0)
}

async fn alerts(peer: &Peer, job: JobId) -> Vec<DlqAlert> {
    peer.store.alerts(job).await.expect("alerts answers")
}

pub(super) async fn the_same_error_of_the_same_job_is_recorded_once_in_its_window(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (one, two) = (Life::Failed.reach(&node, job()).await, Life::Failed.reach(&node, job()).await);
    let recorded = async |alert| record(&other, alert).await.recorded;

    assert!(record(&node, alert(one, "a1", "refused")).await.recorded);
    assert!(!recorded(alert(one, "a1", "refused")).await, "the same error");
    assert!(recorded(alert(one, "b2", "refused")).await, "another error of the job");
    assert!(recorded(alert(two, "a1", "refused")).await, "the same error of another job");
    fx.advance(WINDOW - Duration::from_millis(1));
    let again = record(&node, alert(one, "a1", "refused")).await;
    assert_eq!((again.recorded, again.notify), (false, false), "the window is not over");
    fx.advance(Duration::from_millis(1));
    assert!(recorded(alert(one, "a1", "refused")).await, "it is over");
    assert!(!recorded(alert(one, "a1", "refused")).await, "and starts anew");
    assert_eq!(alerts(&node, one).await.len(), 3);
}

pub(super) async fn of_like_errors_one_in_a_window_is_told_and_all_are_counted(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let told = |notify, count| Alerted { recorded: true, notify, count };
    let like = |n: usize| alert(JobId::generate(), "a1", &format!("no answer after {n} ms"));
    let start = fx.now();

    for count in 1..=4 {
        assert_eq!(record(&node, like(count)).await, told(count == 1, count as u64));
        fx.advance(10 * SECOND);
    }
    let unlike = alert(JobId::generate(), "a1", "refused");
    assert_eq!(record(&other, unlike).await, told(true, 1), "another kind of error");
    fx.advance(WINDOW - fx.now().since(start) - Duration::from_millis(1));
    assert_eq!(record(&other, like(5)).await, told(false, 5), "the window counts from the one that was told");
    fx.advance(Duration::from_millis(1));
    assert_eq!(record(&node, like(6)).await, told(true, 1), "it is over");
    assert_eq!(record(&other, like(7)).await, told(false, 2));
}

pub(super) async fn alerts_of_one_call_are_answered_in_order(fx: Fixture) {
    let node = fx.node("a").await;
    let (one, two) = (JobId::generate(), JobId::generate());
    let call = [
        alert(one, "a1", "refused"),
        alert(two, "b2", "no answer"),
        alert(one, "a1", "refused"),
        alert(two, "a1", "refused"),
    ];

    let answers = node.store.record_alerts(&call).await.expect("record_alerts answers");

    let told: Vec<_> = answers.iter().map(|answer| (answer.recorded, answer.notify)).collect();
    assert_eq!(told, [(true, true), (true, true), (false, false), (true, false)]);
    assert_eq!((answers[0].count, answers[1].count, answers[3].count), (1, 1, 2));
    assert_eq!(node.store.record_alerts(&[]).await.expect("record_alerts answers"), []);
}

pub(super) async fn every_recorded_alert_is_listed_oldest_first(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let (one, two) = (Life::Failed.reach(&node, job()).await, Life::Failed.reach(&node, job()).await);
    let mut expected = Vec::new();
    for (id, hash) in [(one, "c3"), (two, "a1"), (one, "a1"), (one, "c3"), (one, "b2")] {
        let new = alert(id, hash, "no answer");
        if record(&node, new.clone()).await.recorded && id == one {
            expected.push(DlqAlert::new(one, new.error_hash, new.fingerprint, fx.now()));
        }
        fx.advance(SECOND);
    }

    assert_eq!(expected.len(), 3);
    assert_eq!(alerts(&reader, one).await, expected);
    assert_eq!(alerts(&reader, two).await.len(), 1);
    assert_eq!(alerts(&reader, JobId::generate()).await, []);
}

pub(super) async fn like_errors_that_arrive_together_are_told_once_and_counted_exactly(fx: Fixture) {
    const CONTENDERS: usize = 6;
    let stores = connections(&fx, CONTENDERS).await;
    for round in 0..5 {
        let message = ["alpha", "beta", "gamma", "alpha", "beta"][round];
        // Rounds with a known message meet the group of an earlier window.
        fx.advance(WINDOW + SECOND);

        let answers = fx
            .race(CONTENDERS, |i| {
                let store = Arc::clone(&stores[i]);
                let like = [(); 2].map(|()| alert(JobId::generate(), "a1", message));
                async move { store.record_alerts(&like).await.expect("record_alerts answers under a race") }
            })
            .await
            .concat();

        assert!(answers.iter().all(|answer| answer.recorded), "round {round}: {answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.notify).count(), 1, "round {round}: {answers:?}");
        let mut counts: Vec<_> = answers.iter().map(|answer| answer.count).collect();
        counts.sort_unstable();
        let exact: Vec<_> = (1..=2 * CONTENDERS as u64).collect();
        assert_eq!(counts, exact, "round {round}");
        let told = answers.iter().find(|answer| answer.notify).expect("one is told");
        assert_eq!(told.count, 1, "round {round}: the first one is told");
    }
}

pub(super) async fn the_same_alert_from_many_connections_is_recorded_once(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    let id = Life::Failed.reach(&node, job()).await;
    for round in 1..=4 {
        fx.advance(WINDOW + SECOND);

        let answers = fx
            .race(4, |i| {
                let store = Arc::clone(&stores[i]);
                let same = alert(id, "a1", "refused");
                async move { store.record_alerts(&[same]).await.expect("record_alerts answers under a race") }
            })
            .await
            .concat();

        assert_eq!(answers.iter().filter(|answer| answer.recorded).count(), 1, "round {round}: {answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.notify).count(), 1, "round {round}: {answers:?}");
        assert_eq!(alerts(&node, id).await.len(), round);
    }
}
