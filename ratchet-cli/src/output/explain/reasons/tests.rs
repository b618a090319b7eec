use std::time::Duration;

use ratchet_api::{JobPayload, JsonText, NewJob, NodeInfo};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

fn node(label: &str, methods: &[&str], lease_until: Timestamp) -> Node {
    let mut info = NodeInfo::new(Owner::incarnate(label));
    info.methods = methods.iter().map(ToString::to_string).collect();
    let mut node = Node::joined(info, at(-60_000), Duration::from_secs(1));
    (node.lease_until, node.slots) = (lease_until, 2);
    node
}

/// The facts of a job that nothing keeps from running, on a live node.
fn facts(change: impl FnOnce(&mut Facts)) -> Facts {
    let payload = JobPayload::new("shop.Till", "charge", &JsonText::parse("[]").unwrap()).unwrap();
    let mut facts = Facts {
        job: Job::pending(NewJob::new(payload), 0, NOW),
        now: NOW,
        parents: Vec::new(),
        batch: None,
        queue: QueueHealth::default(),
        nodes: vec![node("alive", &["shop.Till.charge"], at(1))],
        resource: None,
        ahead: Ahead::default(),
        breaker_open: false,
    };
    change(&mut facts);
    facts
}

fn of(change: impl FnOnce(&mut Facts)) -> Vec<Reason> {
    reasons(&facts(change))
}

fn resource(limit: Option<u32>, holders: usize) -> Resource {
    let holder = || Holder { job: JobId::generate(), node: None };
    let holders = (0..holders).map(|_| holder()).collect();
    Resource { name: ResourceName::new("smtp").unwrap(), limit, holders }
}

#[test]
fn a_job_that_nothing_keeps_is_ready() {
    assert_eq!(of(|_| {}), [Reason::Ready]);
    assert_eq!(of(|facts| facts.resource = Some(resource(Some(2), 1))), [Reason::Ready]);
}

#[test]
fn each_obstacle_is_named() {
    let parent =
        Parent { job: JobId::generate(), status: Some(JobStatus::Running), condition: "SUCCESS".to_owned() };
    let queue = || QueueName::default();
    assert_eq!(
        of(|facts| facts.job.scheduled_time = at(5)),
        [Reason::NotDue { until: at(5).into(), failures: 0, last_error: None }]
    );
    let deferred = of(|facts| (facts.job.scheduled_time, facts.breaker_open) = (at(5), true));
    assert_eq!(deferred, [Reason::BreakerOpen { until: at(5).into() }]);
    assert_eq!(
        of(|facts| facts.job.spec.expires_at = Some(NOW)),
        [Reason::Expired { at: NOW.into() }],
        "from that very moment"
    );
    assert_eq!(of(|facts| facts.queue.paused = true), [Reason::QueuePaused { queue: queue() }]);
    assert_eq!(
        of(|facts| {
            facts.job.blocked_by = 1;
            facts.parents = vec![parent.clone()];
        }),
        [Reason::WaitsFor { needed: 1, jobs: vec![parent] }]
    );
    assert_eq!(
        of(|facts| {
            facts.job.blocked_by = 1;
            facts.batch = Some(BatchProgress::new(3, true));
        }),
        [Reason::WaitsForBatch { ended: 0, total: 3, closed: true }]
    );
    assert_eq!(
        of(|facts| facts.ahead = Ahead { jobs: 7, or_more: false }),
        [Reason::JobsAhead { jobs: 7, or_more: false, queue: queue() }]
    );
    assert_eq!(of(|facts| facts.nodes[0].running = 2), [Reason::NoFreeSlot { slots: 2, nodes: 1 }]);
}

#[test]
fn a_permit_is_missing_if_all_are_taken_or_nobody_knows_the_resource() {
    let full = resource(Some(2), 2);
    let held_by = full.holders.clone();
    let name = full.name.clone();
    assert_eq!(
        of(|facts| facts.resource = Some(full)),
        [Reason::ResourceFull { resource: name.clone(), limit: 2, held_by }]
    );
    assert_eq!(
        of(|facts| facts.resource = Some(resource(None, 0))),
        [Reason::UnknownResource { resource: name }]
    );
}

#[test]
fn a_suspect_waits_to_run_apart() {
    let method = "shop.Till.charge".to_owned();
    let suspect = of(|facts| facts.job.parked_on = Some(ParkedOn::Suspect { crashes: 2, method }));
    assert_eq!(suspect, [Reason::Suspect { crashes: 2 }]);
}

#[test]
fn only_live_nodes_count() {
    let dead = node("dead", &["shop.Till.charge"], NOW);
    let died = dead.info.owner.clone();
    assert_eq!(of(|facts| facts.nodes.clear()), [Reason::NoLiveNode]);
    assert_eq!(of(|facts| facts.nodes = vec![dead.clone()]), [Reason::NoLiveNode]);
    let method = "shop.Till.charge".to_owned();
    assert_eq!(
        of(|facts| facts.nodes = vec![dead, node("alive", &["mail.Mailer.send"], at(1))]),
        [Reason::UnknownMethod { method, live_nodes: 1, similar: Vec::new(), known_to_dead: vec![died] }]
    );
    let mut reaped = node("reaped", &["shop.Till.charge"], at(1));
    reaped.reaped = true;
    assert_eq!(of(|facts| facts.nodes = vec![reaped]), [Reason::NoLiveNode]);
}

#[test]
fn a_method_that_may_have_been_renamed_is_named() {
    let known = ["mail.Mailer.send", "shop.Cash.charge", "shop.Till.pay"];
    let reasons = of(|facts| facts.nodes = vec![node("alive", &known, at(1))]);
    let [Reason::UnknownMethod { similar, .. }] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert_eq!(similar, &known[1..], "of the same target, or of the same name");
}

#[test]
fn a_queue_that_nobody_serves_is_said_to_be_unserved() {
    let serving = |label: &str, methods: &[&str], queues: &[&str]| {
        let mut node = node(label, methods, at(1));
        node.info.queues = queues.iter().map(ToString::to_string).collect();
        node
    };
    let knows = |queues| serving("knows", &["shop.Till.charge"], queues);
    let other = || serving("other", &["mail.Mailer.send"], &["default"]);
    let queue = QueueName::default();
    assert_eq!(of(|facts| facts.nodes = vec![knows(&["default"]), other()]), [Reason::Ready]);
    assert_eq!(
        of(|facts| facts.nodes = vec![knows(&["slow", "mail"]), other()]),
        [Reason::UnservedQueue { queue, served: vec!["mail".to_owned(), "slow".to_owned()] }],
        "whoever serves it does not know the method"
    );
}

#[test]
fn a_job_that_waits_for_parents_never_names_the_crowd() {
    let waits = of(|facts| {
        facts.job.blocked_by = 1;
        facts.ahead.jobs = 9;
    });
    assert_eq!(waits, [Reason::WaitsFor { needed: 1, jobs: Vec::new() }]);
}

#[test]
fn several_obstacles_are_all_named_and_the_crowd_only_without_them() {
    let all = of(|facts| {
        facts.job.status = JobStatus::Paused;
        facts.job.paused_from = Some(JobStatus::Pending);
        facts.job.scheduled_time = at(5);
        facts.queue.paused = true;
        facts.ahead.jobs = 9;
    });
    assert!(
        matches!(all.as_slice(), [Reason::Paused { .. }, Reason::NotDue { .. }, Reason::QueuePaused { .. }]),
        "{all:?}"
    );
}

#[test]
fn a_job_that_runs_says_where_and_whether_that_node_lives() {
    let running = |lease_until| {
        of(|facts| {
            facts.nodes[0].lease_until = lease_until;
            facts.job.status = JobStatus::Running;
            facts.job.picked_by = Some(facts.nodes[0].info.owner.clone());
            facts.job.picked_at = Some(at(-5));
        })
    };
    for (lease_until, alive) in [(at(1), true), (NOW, false)] {
        assert!(
            matches!(running(lease_until).as_slice(), [Reason::Running { node_alive, node: Some(_), .. }] if *node_alive == alive)
        );
    }
    let stopping = of(|facts| {
        facts.job.status = JobStatus::Canceled;
        facts.job.cancel_reason = Some("rain".to_owned());
    });
    assert_eq!(stopping, [Reason::Stopping { node: None, why: Some("rain".to_owned()) }]);
}
